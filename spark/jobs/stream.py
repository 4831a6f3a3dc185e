"""What a cluster submits for a stream; the arguments are those of `tailrace stream`.

spark-submit spark/jobs/stream.py pipelines/flights.py --kafka flights --bootstrap broker:9092
"""

import sys

from tailrace.cli.main import app
from tailrace.cli.runtime.cluster_entry import run_submitted

if __name__ == "__main__":
    run_submitted(app, "stream", sys.argv[1:])
