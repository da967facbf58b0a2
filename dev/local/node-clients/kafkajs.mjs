// kafkajs reads topics in a group and writes each record as a line of JSON, as `DumpRecords` does.
//
// Arguments: bootstrap server, isolation level, group, "read" or "session", topics. A session also sends what an
// administrator sends. A partition is complete at the end offset that it had at the start; kafkajs returns no control
// records, so a batch event shows that the last offset was passed.
import kafkajs from "kafkajs";

const QUIET_MS = 10_000; // without a batch, which ends the reading
const [bootstrap, isolation, groupId, mode, ...topics] = process.argv.slice(2);
const base64 = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const client = new kafkajs.Kafka({
  clientId: "ts-local",
  brokers: [bootstrap],
  logLevel: kafkajs.logLevel.ERROR,
  retry: { retries: 3 },
});

const admin = client.admin();
await admin.connect();
const ends = new Map();
for (const topic of topics) {
  for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
    if (BigInt(high) > BigInt(low)) ends.set(`${topic}/${partition}`, BigInt(high));
  }
}
const consumer = client.consumer({ groupId, readUncommitted: isolation !== "read_committed" });
await consumer.connect();
await consumer.subscribe({ topics, fromBeginning: true });
let last = Date.now();
let failure = null;
consumer.on("consumer.crash", ({ payload }) => (failure = payload.error));
consumer.on("consumer.end_batch_process", ({ payload }) => {
  last = Date.now();
  const name = `${payload.topic}/${payload.partition}`;
  if (BigInt(payload.lastOffset) + 1n >= (ends.get(name) ?? 0n)) ends.delete(name);
});
const lines = [];
await consumer.run({
  eachMessage: async ({ topic, partition, message }) => {
    const headers = Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
      (Array.isArray(value) ? value : [value]).map((each) => [name, base64(each)]),
    );
    lines.push(
      JSON.stringify({
        topic,
        partition,
        offset: Number(message.offset),
        timestamp: Number(message.timestamp),
        timestampType: 0,
        key: base64(message.key),
        value: base64(message.value),
        headers,
      }),
    );
  },
});
while (failure === null && ends.size > 0 && Date.now() - last < QUIET_MS) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
await consumer.disconnect(); // commits
if (mode === "session") {
  await admin.listTopics();
  await admin.fetchTopicMetadata({ topics });
  await admin.describeCluster();
  await admin.listGroups();
  await admin.describeGroups([groupId]);
  await admin.fetchOffsets({ groupId, topics });
  for (const topic of topics) await admin.fetchTopicOffsetsByTimestamp(topic, 1_700_000_100_000);
  await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topics[0] }] });
}
await admin.disconnect();
if (failure !== null) {
  console.error(String(failure.errors?.at(-1)?.errors?.[0] ?? failure));
  process.exit(1);
}
process.stdout.write(lines.map((line) => `${line}\n`).join(""));
