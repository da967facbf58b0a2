import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Writes every record of the named topics as a line of JSON, as Kafka's own consumer returns it.
 *
 * <p>Arguments: bootstrap servers, isolation level (read_uncommitted or read_committed), topics (comma-separated), and
 * optionally the first offset and the end offset (exclusive) of every partition; "-" means the
 * earliest offset, or the end offset when the program starts (with read_committed the last stable offset).
 *
 * <p>A partition is complete when the consumer's position has reached its end, because the last offsets may be control
 * batches, which are not records. Records are in order of partitions, then of offsets.
 */
public final class DumpRecords {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long TIMEOUT_NANOS = Duration.ofSeconds(60).toNanos();

    private DumpRecords() {}

    public static void main(String[] args) throws Exception {
        if (args.length < 3 || args.length > 5) {
            System.err.println("usage: DumpRecords BOOTSTRAP ISOLATION TOPIC[,TOPIC...] [FROM|-] [END|-]");
            System.exit(2);
        }
        PrintStream out = written(System.out);
        dump(args, out);
        if (out.checkError()) {
            throw new IllegalStateException("standard output was closed before everything was written");
        }
    }

    /** Does the same with arguments that were written as one line each, where one JVM serves many calls. */
    public static void dump(DataInputStream arguments, DataOutputStream result) throws Exception {
        String text = new String(arguments.readAllBytes(), StandardCharsets.UTF_8);
        PrintStream out = written(result);
        dump(text.split("\n"), out);
        out.flush();
    }

    private static PrintStream written(OutputStream out) {
        return new PrintStream(new BufferedOutputStream(out, 1 << 20), false, StandardCharsets.UTF_8);
    }

    private static void dump(String[] args, PrintStream out) {
        Long from = args.length > 3 && !args[3].equals("-") ? Long.valueOf(args[3]) : null;
        Long end = args.length > 4 && !args[4].equals("-") ? Long.valueOf(args[4]) : null;

        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, args[1].toLowerCase(Locale.ROOT));
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        properties.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        properties.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, "10000");
        // A fetch that waits at one partition's end would delay the first fetch of the next.
        properties.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, "10");

        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            for (TopicPartition partition : partitions(consumer, Arrays.asList(args[2].split(",")))) {
                dump(consumer, partition, from, end, out);
            }
        }
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, List<String> topics) {
        List<TopicPartition> all = new ArrayList<>();
        for (String topic : topics) {
            List<PartitionInfo> found = consumer.partitionsFor(topic);
            if (found == null || found.isEmpty()) {
                throw new IllegalArgumentException("no such topic: " + topic);
            }
            found.stream()
                    .mapToInt(PartitionInfo::partition)
                    .sorted()
                    .forEach(p -> all.add(new TopicPartition(topic, p)));
        }
        return all;
    }

    private static void dump(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, Long from, Long end, PrintStream out) {
        List<TopicPartition> one = List.of(partition);
        consumer.assign(one);
        long last = end != null ? end : consumer.endOffsets(one).get(partition);
        long first = from != null ? from : consumer.beginningOffsets(one).get(partition);
        consumer.seek(partition, first);
        long position = first;
        long progressAt = System.nanoTime();
        StringBuilder line = new StringBuilder();
        while (position < last) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                if (record.offset() < last) {
                    line.setLength(0);
                    write(record, line);
                    out.append(line).append('\n');
                }
            }
            long now = consumer.position(partition);
            if (now > position) {
                position = now;
                progressAt = System.nanoTime();
            } else if (System.nanoTime() - progressAt > TIMEOUT_NANOS) {
                throw new IllegalStateException(
                        partition + ": position " + position + " did not advance for 60 s; end offset " + last);
            }
        }
    }

    private static void write(ConsumerRecord<byte[], byte[]> record, StringBuilder line) {
        line.append("{\"topic\":").append(quoted(record.topic()));
        line.append(",\"partition\":").append(record.partition());
        line.append(",\"offset\":").append(record.offset());
        line.append(",\"timestamp\":").append(record.timestamp());
        line.append(",\"timestampType\":").append(record.timestampType().id);
        line.append(",\"key\":").append(base64(record.key()));
        line.append(",\"value\":").append(base64(record.value()));
        line.append(",\"headers\":[");
        boolean first = true;
        for (Header header : record.headers()) {
            line.append(first ? "[" : ",[").append(quoted(header.key())).append(',');
            line.append(base64(header.value())).append(']');
            first = false;
        }
        line.append("]}");
    }

    private static String base64(byte[] data) {
        return data == null ? "null" : '"' + Base64.getEncoder().encodeToString(data) + '"';
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || Character.isSurrogate(c)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
