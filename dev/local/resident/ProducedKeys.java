import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces records with keys by Kafka's Java producer and its own partitioner; the result is their partitions. */
final class ProducedKeys {
    private ProducedKeys() {}

    /** Reads the bootstrap servers, the topic, the size of a value, and the number of keys; then each key. */
    static void produce(DataInputStream arguments, DataOutputStream result) throws Exception {
        Properties properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.readUTF());
        String topic = arguments.readUTF();
        byte[] value = new byte[arguments.readInt()];
        ByteArraySerializer bytes = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (int left = arguments.readInt(); left > 0; left--) {
                byte[] key = HexFormat.of().parseHex(arguments.readUTF());
                sent.add(producer.send(new ProducerRecord<>(topic, key, value)));
            }
        }
        for (Future<RecordMetadata> each : sent) {
            result.writeInt(each.get().partition());
        }
    }
}
