// Wrote the two logs here, with Kafka 4.1.2 (transaction.version 2): `java -cp "build/jars/4/*" Transactions.java
// <bootstrap server>` on a topic `t` of two partitions. Four transactions over both partitions; the third is aborted.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "transactional.id", "tx");
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(config, bytes, new ByteArraySerializer())) {
            producer.initTransactions();
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                for (int record = 0; record < 2; record++) {
                    for (int partition = 0; partition < 2; partition++) {
                        byte[] key = ("k" + number).getBytes();
                        producer.send(new ProducerRecord<>("t", partition, key, ("v" + number).getBytes())).get();
                    }
                }
                if (number == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }
}
