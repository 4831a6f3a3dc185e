"""What a cluster submits for maintenance; the arguments are those of `tailrace maintain`.

spark-submit spark/jobs/maintain.py pipelines/flights.py
"""

import sys

from tailrace.cli.main import app

if __name__ == "__main__":
    app(["maintain", *sys.argv[1:]], prog_name="tailrace")
