"""Each kind of stored JSON object: the bytes of one, which never change, and how it is read."""

from collections.abc import Callable
from typing import Any

from ts_common.archive.commit import decode_commit, decode_log_start
from ts_common.archive.erasures import Erasure, ErasureRun
from ts_common.archive.gap_records import Gap
from ts_common.archive.group_offsets import StoredGroup
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.holds import Hold, Removal
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.layout import Layout
from ts_common.archive.repair_requests import RepairAnswer, RepairRequest
from ts_common.archive.restored import Restored
from ts_common.archive.sealed_objects import SealJson
from ts_common.archive.snapshots import ClusterSnapshot, GroupsSnapshot
from ts_common.archive.table_claims import TableClaims
from ts_tables.claims.state import TableState
from ts_tables.plain.entries import Contents, LedgerEntry
from tsctl.seal.leaves import Head, Seal

KEY = "some/key.json"
FIRST_LINE = b"0" * 19 + b"5\n"  # of a commit and of `log.start`
_COMMIT = (
    b'{"next":6,"epoch":1,"epochs":[[0,0],[1,3]],"lso":null,"topicId":"5fWnyHqTQDqQDqQDqQDqQA","broker":1,"time":1,'
    b'"nonce":"x","tail":[3,5],"java":5,"live":{"log":"1","of":[["2.pii",0]],"ahead":[[1,6]]},"version":2,"lineage":[1,5,5]}\n'
)
_LOG_START = (
    b'{"version":3,"lineage":[1,5,5],"floor":4,"since":"gc-20261128T020000000Z-1f2e3d4c","erased":4,'
    b'"writtenBy":"erase-20261129T010000000Z-9a8b7c6d"}\n'
)
_INCARNATIONS = (
    b'{\n "incarnations": [\n  {\n   "topicId": "a",\n   "firstSeen": 1,\n   "directory": "t",\n'
    b'   "made": 1\n  }\n ]\n}\n'
)
_HOLD = (
    b'{"version":1,"name":"h","topics":["t.*","u"],"prefix":"v","reason":"r","until":5,"setBy":"a","time":1,'
    b'"twoPeople":true,"purpose":"hold","lock":true}'
)
_REQUEST = (
    b'{"version":1,"topic":"t","partition":0,"directory":"t~a-0","kind":"damaged","from":1,"to":5,'
    b'"object":"c/t~a-0/00000000000000000005.log","etag":"e","size":5,"time":1,"by":"b"}\n'
)
_STATE = (
    b'{"version":1,"cluster":"prod","isolation":"read_committed","topics":{"t":[{"directory":"t","id":"a",'
    b'"partitions":{"0":{"from":0,"to":250,"epochs":[[0,0],[3,120]],"lineage":[3,120,140],'
    b'"holes":[[100,120,[[7,90]]]],"lost":[[20,30]],"kept":[[200,210,9,"88:1f"]],'
    b'"forgotten":[[5,"00000000000000000000000000000000"]],"passed":5}}}]},"parser":"p","columns":[["a","b","long"]],'
    b'"initial_columns":1,"schemas":["s"],"key_schema":"k","base":[["a","long"]],"generation":2,"marked":[5,6],'
    b'"replays":2}'
)
_SHOWN = (
    b'{"path":"a/b.parquet","size":5,"crc32c":7,"rows":4,"key":[20417,"a",null],"covers":[["t","a",0,3,10]],'
    b'"staged":"_ts/5f0c/staging/6-91d0/0-44ab","first":3,"runs":[3,2,1,2]}'
)
_HELD = (
    b'{"path":"_ts/5f0c/staging/6-91d0/0-44ab","size":5,"crc32c":7,"rows":4,"key":[],"covers":[["t",null,0,3,10]],'
    b'"since":5}'
)
_ENTRY = (
    b'{"version":1,"number":8,"plan":"p","valid_through":null,"late":0,"state":%b,"shown":[%b],"held":[%b],'
    b'"removed":["x"]}'
) % (_STATE, _SHOWN, _HELD)
_CONTENTS = (
    b'{"version":1,"generation":"5f0c0000","number":7,"layout":{"format":"parquet"},"valid_through":5,"state":%b,'
    b'"files":[%b],"held":[%b],"removed":[["x/y",5]],"dropped":false}'
) % (_STATE, _SHOWN, _HELD)
_CLUSTER = (
    b'{"version":1,"time":1,"broker":1,"kafka":"4.1-IV1","topics":{"t":{"id":"a","partitions":[[1,2],[2,1]],'
    b'"configs":{"retention.ms":"-1"}},"u":{"id":null,"partitions":[],"configs":null}},'
    b'"brokers":{"1":{"host":"h","port":9092,"rack":"r","configs":{}},'
    b'"default":{"host":null,"port":null,"rack":null,"configs":{"a":"b"}}},'
    b'"quotas":[{"entity":{"client-id":null,"user":"u"},"limits":{"producer_byte_rate":1048576.5}}],'
    b'"acls":[{"resourceType":"TOPIC","name":"t","pattern":"LITERAL","principal":"User:u","host":"*",'
    b'"operation":"READ","permission":"ALLOW"}],"users":[{"name":"u","mechanisms":{"SCRAM-SHA-256":4096}}]}\n'
)
_RESTORED = (
    b'{"version":1,"time":1,"by":"b","topics":{"orders~a":{"url":null,"cluster":"prod","entropyBits":5,'
    b'"directory":"orders","partitions":{"0":{"end":1000,"lineage":null,"epochs":[[5,0]],'
    b'"ended":[[4711,3,990,"abort"]]},"10":{"end":5,"lineage":[1,5,5],"epochs":[],"ended":[]}}}}}\n'
)
_HEAD = (
    b'{"version":1,"seal":2,"cluster":"prod","location":"s3://a/b","time":5,"leaves":2,"root":"%b","previous":"%b",'
    b'"key":"%b"}'
) % (b"0" * 64, b"1" * 64, b"2" * 64)
_SIGNED_SEAL = (
    b'{"version":1,"head":"x","signature":"%b","leaves":[{"kind":"log","key":"prod/t-0/00000000000000000005.log",'
    b'"version":"v","size":5,"sha256":"%b","base":5,"end":7,"epochs":[[1,5]]},'
    b'{"kind":"retired","key":"prod/t-0/00000000000000000000.log","by":"floor 5"}]}\n'
) % (b"3" * 128, b"4" * 64)
OBJECTS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "commit": (_COMMIT, lambda data: decode_commit(FIRST_LINE + data, KEY)),
    "log-start": (b'{"version":2,"lineage":[1,5,5]}\n', lambda data: decode_log_start(FIRST_LINE + data, KEY)),
    "log-start of retention": (_LOG_START, lambda data: decode_log_start(FIRST_LINE + data, KEY)),
    "gap": (
        b'{"from":1,"to":2,"reason":"retention","time":1,"broker":1}\n',
        lambda data: Gap.decode(data, KEY),
    ),
    "incarnations": (_INCARNATIONS, lambda data: Incarnations.decode(data, KEY, topic="t")),
    "layout": (
        b'{"version":1,"entropyBits":5,"cluster":"c","time":5}\n',
        lambda data: Layout.decode(data, KEY, cluster="c"),
    ),
    "ends": (
        b'{"version":1,"broker":1,"time":1,"partitions":{"a-0":[4711,1],"b-1-10":[5,2]},'
        b'"release":"0.4.0","formats":{"log.start":3}}\n',
        lambda data: Ends.decode(data, KEY, broker=1),
    ),
    "hold": (_HOLD + b"\n", lambda data: Hold.decode(data, KEY, name="h")),
    "removed hold": (
        b'{"version":1,"hold":%b,"removedBy":"b","reason":"r","time":5}\n' % _HOLD,
        lambda data: Removal.decode(data, KEY, name="h", time=5),
    ),
    "request": (_REQUEST, lambda data: RepairRequest.decode(data, KEY, id="1700000000000-1a2b3c4d")),
    "answer": (
        b'{"version":1,"status":"repaired","reason":"r","objects":["k"],"broker":1,"time":1}\n',
        lambda data: RepairAnswer.decode(data, KEY),
    ),
    "groups": (
        '{"version":1,"group":"g","time":1,"partitions":{"t-0":[5,3,5,"é"]}}\n'.encode(),
        lambda data: StoredGroup.decode(data, KEY, group="g"),
    ),
    "erasure": (
        b'{"version":1,"topic":"t","time":1,"by":"a","reference":"case 17","due":2,"unread":0,'
        b'"partitions":[["t-0",1000,900,4,181]]}\n',
        lambda data: Erasure.decode(data, KEY, name="case-17"),
    ),
    "erasure run": (
        b'{"version":1,"time":3,"by":"a","unread":1,"partitions":[["t-0",1000,1200,4,181]]}\n',
        lambda data: ErasureRun.decode(data, KEY, name="case-17"),
    ),
    "restored": (_RESTORED, lambda data: Restored.decode(data, KEY)),
    "signed seal": (_SIGNED_SEAL, lambda data: Seal.decode(data, KEY)),
    "head of a signed seal": (_HEAD, lambda data: Head.decode(data, KEY)),
    "seal": (
        b'{"version":1,"nonce":"x","lineage":[1,5,5],"sealed":[[0,5,"0-5.1a2b3c4d.seal"]],"open":{"t":[5,7]}}\n',
        lambda data: SealJson.decode(data, KEY),
    ),
    "snapshot of a cluster": (_CLUSTER, lambda data: ClusterSnapshot.decode(data, KEY)),
    "snapshot of groups": (
        b'{"version":1,"time":1,"groups":{"g":{"t-0":[5,-1,"x"]}}}\n',
        lambda data: GroupsSnapshot.decode(data, KEY),
    ),
    "table claims": (
        b'{"version":1,"table":"a.b","snapshot":"1","time":5,"partitions":{"t-0":5,"t~a-0":7}}\n',
        lambda data: TableClaims.decode(data, KEY, table="a.b"),
    ),
    "state": (_STATE, lambda data: TableState.decode(data, KEY)),
    "entry": (_ENTRY, lambda data: LedgerEntry.decode(data, KEY, number=8)),
    "contents": (_CONTENTS, lambda data: Contents.decode(data, KEY)),
}
