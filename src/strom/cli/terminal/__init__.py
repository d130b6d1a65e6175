"""What commands share: how they reach the server, read words, print rows and errors, and show their help."""
