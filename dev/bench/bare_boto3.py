"""The shipper to compare with: `put_object` of boto3 with its defaults, on several threads, and nothing else.

    python bare_boto3.py BUCKET PREFIX THREADS files|memory FILE...

With `memory` it sends random bytes of each file's size and opens no file, to measure the effect of the store alone. It
waits for a line on standard input when it is ready, and prints when it began and ended (seconds since 1970).
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3

_MIB = 1 << 20


def main() -> None:
    """Put the files."""
    bucket, prefix, threads, source, *files = sys.argv[1:]
    noise = os.urandom(_MIB)
    client = boto3.client("s3")
    client.head_bucket(Bucket=bucket)

    def put(name: str) -> None:
        path = Path(name)
        key = f"{prefix}/{path.parent.name}/{path.name}"
        if source == "memory":
            size = path.stat().st_size
            client.put_object(Bucket=bucket, Key=key, Body=(noise * (size // _MIB + 1))[:size])
        else:
            with path.open("rb") as body:
                client.put_object(Bucket=bucket, Key=key, Body=body)

    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    with ThreadPoolExecutor(int(threads)) as pool:
        for _ in pool.map(put, files):
            pass
    print(began, time.time(), flush=True)
    sys.stdin.readline()  # the caller reads its memory and CPU before it ends


if __name__ == "__main__":
    main()
