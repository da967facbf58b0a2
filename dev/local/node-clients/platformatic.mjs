// @platformatic/kafka reads topics in a group and writes each record as a line of JSON, as `DumpRecords` does.
//
// Arguments: bootstrap server, isolation level, group, "read" or "session", topics. A session also sends what an
// administrator sends. The client returns no position, so a partition is complete at the last record below the end
// offset that it had at the start, or when no record arrives for some seconds.
import { Admin, Consumer, MessagesStreamFallbackModes, MessagesStreamModes } from "@platformatic/kafka";

const QUIET_MS = 5_000;
const [bootstrap, isolation, groupId, mode, ...topics] = process.argv.slice(2);
const base64 = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const isolationLevel = isolation === "read_committed" ? 1 : 0;
const common = { clientId: "ts-local", bootstrapBrokers: [bootstrap], retries: 3 };

const consumer = new Consumer({ ...common, groupId, isolationLevel, maxBytes: 1 << 20, maxWaitTime: 500 });
const starts = await consumer.listOffsets({ topics, timestamp: -2n });
const lasts = await consumer.listOffsets({ topics, timestamp: -1n, isolationLevel });
const ends = new Map();
for (const topic of topics) {
  lasts.get(topic).forEach((end, partition) => {
    if (end > starts.get(topic)[partition]) ends.set(`${topic}/${partition}`, end);
  });
}
const stream = await consumer.consume({
  topics,
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST,
  autocommit: true,
});
let last = Date.now();
let failure = null;
const lines = [];
stream.on("error", (error) => (failure = error));
stream.on("data", (message) => {
  last = Date.now();
  const name = `${message.topic}/${message.partition}`;
  lines.push(
    JSON.stringify({
      topic: message.topic,
      partition: message.partition,
      offset: Number(message.offset),
      timestamp: Number(message.timestamp),
      timestampType: 0,
      key: base64(message.key),
      value: base64(message.value),
      headers: [...message.headers].map(([header, value]) => [Buffer.from(header).toString(), base64(value)]),
    }),
  );
  if (message.offset + 1n >= (ends.get(name) ?? 0n)) ends.delete(name);
});
while (failure === null && ends.size > 0 && Date.now() - last < QUIET_MS) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
await consumer.close(true);
if (mode === "session") {
  const admin = new Admin(common);
  await admin.listTopics();
  await admin.metadata({ topics });
  await admin.listGroups();
  await admin.describeGroups({ groups: [groupId] });
  await admin.listConsumerGroupOffsets({ groups: [{ groupId, topics: null }] });
  await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: topics[0], configurationKeys: null }] });
  await admin.close();
}
if (failure !== null) {
  console.error(String(failure.errors?.at(-1)?.errors?.[0] ?? failure));
  process.exit(1);
}
process.stdout.write(lines.map((line) => `${line}\n`).join(""));
