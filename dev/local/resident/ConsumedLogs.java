package org.apache.kafka.clients.consumer.internals;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.record.AbstractRecords;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.AbstractIterator;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.slf4j.Logger;

/**
 * Bytes of logs, read by the consumer's own {@link CompletedFetch} as if each were the only answer to a fetch.
 *
 * <p>Arguments: first offset (int64), whether CRCs are checked (byte), the most bytes of an answer (int32), the number
 * of logs (int32); of each log the number of its aborted transactions (int32; -1: those whose markers the log has, as a
 * broker finds them), of each its producer id and first offset (int64), the log's size (int32), and its bytes.
 *
 * <p>Result, for each log: aborted transactions as they were used (int32; of each its producer id, first offset and
 * marker's offset, int64; the last is -1 if given), then two readings, uncommitted and committed. A reading: whether it
 * was cut at the most bytes (byte), the position of the batch in work at its end (int32), the class and message of what
 * the consumer threw (strings, empty without it), the number of records (int32); of each offset and timestamp (int64),
 * timestamp type (byte), leader epoch (int32, -1 without one), key, value, and headers (int32, of each name and value).
 * A string is its size (int32) and UTF-8; bytes that are null have the size -1.
 */
public final class ConsumedLogs {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final LogContext CONTEXT = new LogContext();
    private static final Logger LOGGER = CONTEXT.logger(ConsumedLogs.class);
    private static final Metrics METRICS = new Metrics();
    private static final FetchMetricsManager COUNTED = new FetchMetricsManager(METRICS, new FetchMetricsRegistry());
    private static final Deserializers<byte[], byte[]> BYTES =
            new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer(), METRICS);
    private static final int POLLED = 500;

    private ConsumedLogs() {}

    public static void consume(DataInputStream in, DataOutputStream out) throws IOException {
        long start = in.readLong();
        boolean checkCrcs = in.readByte() != 0;
        int most = in.readInt();
        int logs = in.readInt();
        for (int at = 0; at < logs; at++) {
            List<long[]> aborted = new ArrayList<>();
            int given = in.readInt();
            for (int transaction = 0; transaction < given; transaction++) {
                aborted.add(new long[] {in.readLong(), in.readLong(), -1});
            }
            byte[] log = in.readNBytes(in.readInt());
            if (given < 0) {
                aborted = abortedIn(log);
            }
            out.writeInt(aborted.size());
            for (long[] transaction : aborted) {
                for (long field : transaction) {
                    out.writeLong(field);
                }
            }
            for (IsolationLevel level : List.of(IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)) {
                FetchConfig config = new FetchConfig(1, most, 0, most, POLLED, checkCrcs, "", level);
                Reading reading = new Reading(log, start, aborted, most);
                if (!reading.read(config, POLLED)) {
                    // What is no KafkaException costs the records that the same poll had found, so the polls are of one.
                    reading = new Reading(log, start, aborted, most);
                    reading.read(config, 1);
                }
                reading.write(out);
            }
        }
    }

    /** Transactions that the log aborts, as a broker lists them in its {@code .txnindex}. */
    private static List<long[]> abortedIn(byte[] log) {
        List<long[]> aborted = new ArrayList<>();
        Map<Long, Long> begun = new HashMap<>();
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(log)).batches()) {
                if (!batch.hasProducerId()) {
                    continue;
                }
                if (!batch.isControlBatch()) {
                    if (batch.isTransactional()) {
                        begun.putIfAbsent(batch.producerId(), batch.baseOffset());
                    }
                    continue;
                }
                Record marker = batch.iterator().next();
                ControlRecordType type = ControlRecordType.parse(marker.key());
                Long first = begun.remove(batch.producerId());
                if (type == ControlRecordType.ABORT && first != null) {
                    aborted.add(new long[] {batch.producerId(), first, marker.offset()});
                }
            }
        } catch (RuntimeException | Error damage) {
            return aborted;
        }
        return aborted;
    }

    /** One reading of a log. */
    private static final class Reading {
        private final Watched records;
        private final CompletedFetch fetch;
        private final Shown shown = new Shown();
        private final DataOutputStream row = new DataOutputStream(shown);
        private final int most;
        private int count;
        private boolean isCut;
        private String type = "";
        private String message = "";

        Reading(byte[] log, long start, List<long[]> aborted, int most) {
            this.most = most;
            records = new Watched(MemoryRecords.readableRecords(ByteBuffer.wrap(log)));
            List<FetchResponseData.AbortedTransaction> list = new ArrayList<>();
            for (long[] transaction : aborted) {
                list.add(new FetchResponseData.AbortedTransaction()
                        .setProducerId(transaction[0])
                        .setFirstOffset(transaction[1]));
            }
            FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
                    .setPartitionIndex(PARTITION.partition())
                    .setHighWatermark(Long.MAX_VALUE)
                    .setLastStableOffset(Long.MAX_VALUE)
                    .setAbortedTransactions(list)
                    .setRecords(records);
            fetch = new CompletedFetch(
                    LOGGER,
                    new SubscriptionState(CONTEXT, AutoOffsetResetStrategy.NONE),
                    BufferSupplier.NO_CACHING,
                    PARTITION,
                    data,
                    new FetchMetricsAggregator(COUNTED, Set.of(PARTITION)),
                    start);
        }

        /** Return false if what ended the reading could have cost records of its poll. */
        boolean read(FetchConfig config, int polled) throws IOException {
            try {
                while (!fetch.isConsumed()) {
                    for (ConsumerRecord<byte[], byte[]> record : fetch.fetchRecords(config, BYTES, polled)) {
                        int before = shown.size();
                        if (!add(record)) {
                            shown.cutTo(before);
                            isCut = true;
                            return true;
                        }
                        count++;
                    }
                }
            } catch (KafkaException error) {
                // The consumer wraps what it has met in a sentence about seeking past it.
                Throwable met = error.getCause() == null ? error : error.getCause();
                type = met.getClass().getName();
                message = String.valueOf(met.getMessage());
            } catch (RuntimeException | Error error) {
                type = error.getClass().getName();
                message = String.valueOf(error.getMessage());
                return false;
            }
            return true;
        }

        /** Return false, after a part of the record, if there are more than the most bytes. */
        private boolean add(ConsumerRecord<byte[], byte[]> record) throws IOException {
            row.writeLong(record.offset());
            row.writeLong(record.timestamp());
            row.writeByte(record.timestampType().id);
            row.writeInt(record.leaderEpoch().orElse(-1));
            writeBytes(row, record.key());
            writeBytes(row, record.value());
            Header[] headers = record.headers().toArray();
            row.writeInt(headers.length);
            for (Header header : headers) {
                if (shown.size() > most) {
                    return false;
                }
                writeBytes(row, header.key().getBytes(StandardCharsets.UTF_8));
                writeBytes(row, header.value());
            }
            return shown.size() <= most;
        }

        void write(DataOutputStream out) throws IOException {
            out.writeByte(isCut ? 1 : 0);
            out.writeInt(records.position);
            writeBytes(out, type.getBytes(StandardCharsets.UTF_8));
            writeBytes(out, message.getBytes(StandardCharsets.UTF_8));
            out.writeInt(count);
            shown.writeTo(out);
        }
    }

    private static final class Shown extends ByteArrayOutputStream {
        void cutTo(int size) {
            count = size;
        }
    }

    private static void writeBytes(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data == null ? -1 : data.length);
        if (data != null) {
            out.write(data);
        }
    }

    /** The records of a fetch, which notes the position of the batch that the consumer works on. */
    private static final class Watched extends AbstractRecords {
        private final MemoryRecords records;
        private int position;

        Watched(MemoryRecords records) {
            this.records = records;
        }

        @Override
        public Iterable<MutableRecordBatch> batches() {
            return this::batchIterator;
        }

        @Override
        public AbstractIterator<MutableRecordBatch> batchIterator() {
            Iterator<MutableRecordBatch> all = records.batchIterator();
            return new AbstractIterator<>() {
                private int end;

                @Override
                protected MutableRecordBatch makeNext() {
                    position = end;
                    if (!all.hasNext()) {
                        return allDone();
                    }
                    MutableRecordBatch batch = all.next();
                    end += batch.sizeInBytes();
                    return batch;
                }
            };
        }

        @Override
        public int sizeInBytes() {
            return records.sizeInBytes();
        }

        @Override
        public Records slice(int from, int size) {
            return records.slice(from, size);
        }

        @Override
        public int writeTo(TransferableChannel channel, int from, int size) throws IOException {
            return records.writeTo(channel, from, size);
        }
    }
}
