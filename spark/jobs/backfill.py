"""What a cluster submits for a backfill; the arguments are those of `tailrace backfill`.

spark-submit spark/jobs/backfill.py pipelines/flights.py --from 2013-03-08 --to 2013-03-10
"""

import sys

from tailrace.cli.main import app
from tailrace.cli.runtime.cluster_entry import run_submitted

if __name__ == "__main__":
    run_submitted(app, "backfill", sys.argv[1:])
