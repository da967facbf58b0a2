"""The shipper to compare with: `put_object` of boto3 with its defaults, on some threads, and nothing else.

    python bare_boto3.py BUCKET PREFIX THREADS FILE...

Waits for a line on standard input once it is ready, and prints when it began and when it ended (seconds since 1970).
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3


def main() -> None:
    """Put the files."""
    bucket, prefix, threads, *files = sys.argv[1:]
    client = boto3.client("s3")
    client.head_bucket(Bucket=bucket)

    def put(name: str) -> None:
        path = Path(name)
        with path.open("rb") as body:
            client.put_object(Bucket=bucket, Key=f"{prefix}/{path.parent.name}/{path.name}", Body=body)

    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    with ThreadPoolExecutor(int(threads)) as pool:
        for _ in pool.map(put, files):
            pass
    print(began, time.time(), flush=True)
    sys.stdin.readline()  # its memory and CPU are read before it ends


if __name__ == "__main__":
    main()
