import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning in each round, in one JVM: the speed of Kafka's consumer after its warm-up.
 *
 * <p>Arguments: bootstrap servers, topic, end offsets (exclusive) of partitions 0, 1, ... separated by commas. For each
 * line on standard input it reads one round and prints one line: records, bytes of keys and values, greatest offset,
 * nanoseconds.
 */
public final class ConsumeAll {
    private ConsumeAll() {}

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        Map<TopicPartition, Long> ends = new HashMap<>();
        for (String end : args[2].split(",")) {
            ends.put(new TopicPartition(args[1], ends.size()), Long.valueOf(end));
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            while (System.in.read() != -1) {
                System.out.println(round(consumer, ends));
            }
        }
    }

    private static String round(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> ends) {
        List<TopicPartition> left = new ArrayList<>(ends.keySet());
        long records = 0;
        long size = 0;
        long greatest = -1;
        long began = System.nanoTime();
        consumer.assign(left);
        consumer.seekToBeginning(left);
        while (!left.isEmpty()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                    records++;
                    size += record.key().length + record.value().length;
                    greatest = Math.max(greatest, record.offset());
                }
            }
            if (left.removeIf(partition -> consumer.position(partition) >= ends.get(partition))) {
                consumer.assign(left);
            }
        }
        return records + " " + size + " " + greatest + " " + (System.nanoTime() - began);
    }
}
