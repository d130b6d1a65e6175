"""What spark-submit runs: ``strom tier`` with the rest of the command line.

spark-submit [options] "$(strom spark tiering)" --bootstrap-servers db1:9123
"""

from __future__ import annotations

import sys

from strom.cli.main import main

if __name__ == "__main__":
    sys.argv = ["strom", "tier", *sys.argv[1:]]
    main()
