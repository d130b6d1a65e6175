"""What a server says about itself: buckets, tables, rates. Plain data, so that it crosses to another process."""
