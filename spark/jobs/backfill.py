"""What a cluster submits for a backfill; the arguments are those of `tailrace backfill`.

spark-submit spark/jobs/backfill.py pipelines/flights.py --from 2013-03-08 --to 2013-03-10
"""

import sys

from tailrace.cli.main import app

if __name__ == "__main__":
    app(["backfill", *sys.argv[1:]], prog_name="tailrace")
