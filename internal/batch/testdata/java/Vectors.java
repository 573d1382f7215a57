import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.function.Predicate;
import java.util.stream.Stream;
import java.util.zip.CRC32;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Kafka's own client as the other side of this package's tests. A vector is a file name.batch, one batch, and a file
 * name.txt, which says what a reader finds in it. README.md says how to run this.
 */
public final class Vectors {
    private static final long TIME = 1_700_000_000_000L;
    private static final long HORIZON = TIME + 86_400_000;

    public static void main(String[] args) throws IOException {
        if (args.length == 2 && args[0].equals("write")) {
            write(Path.of(args[1]));
        } else if (args.length == 2 && args[0].equals("read")) {
            read(Path.of(args[1]));
        } else {
            throw new IllegalArgumentException("write DIR, or read DIR");
        }
    }

    // What Java writes.

    private static void write(Path dir) throws IOException {
        Files.createDirectories(dir);
        for (CompressionType type : CompressionType.values()) {
            Compression codec = Compression.of(type).build();
            DefaultRecordBatch mixed = batch(builder(codec, false), mixed());
            save(dir, "mixed-" + type.name, mixed);
            save(dir, "gaps-" + type.name, filter(mixed, r -> r.value() != null && r.offset() % 2 == 0));
            DefaultRecordBatch horizon = filter(mixed, r -> r.offset() % 3 != 0);
            save(dir, "horizon-" + type.name, horizon);
            save(dir, "horizon-again-" + type.name, filter(horizon, Record::hasValue));
            save(dir, "horizon-empty-" + type.name, filter(horizon, r -> false));
            save(dir, "empty-" + type.name, filter(mixed, r -> false));
            if (type != CompressionType.NONE) {
                save(dir, "large-" + type.name, batch(builder(codec, false), large()));
            }
        }
        DefaultRecordBatch appended = batch(builder(Compression.of(CompressionType.ZSTD).build(), true), mixed());
        appended.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, TIME + 5000);
        save(dir, "appended", appended);
        save(dir, "appended-horizon", filter(appended, r -> true));
        save(dir, "appended-empty", filter(appended, r -> false));
        save(dir, "commit", marker(ControlRecordType.COMMIT, 7));
        DefaultRecordBatch abort = marker(ControlRecordType.ABORT, Integer.MAX_VALUE);
        save(dir, "abort", abort);
        save(dir, "abort-horizon", filter(abort, r -> true));
        save(dir, "leader-change", only(MemoryRecords.withLeaderChangeMessage(5, TIME, 3, ByteBuffer.allocate(256),
            new LeaderChangeMessage().setLeaderId(1))));
    }

    private static MemoryRecordsBuilder builder(Compression codec, boolean transactional) {
        return MemoryRecords.builder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2, codec, TimestampType.CREATE_TIME,
            1L << 40, RecordBatch.NO_TIMESTAMP, 0x0102030405L, (short) 9, 77, transactional, 21);
    }

    private static DefaultRecordBatch batch(MemoryRecordsBuilder builder, List<SimpleRecord> records) {
        records.forEach(builder::append);
        return only(builder.build());
    }

    private static List<SimpleRecord> mixed() {
        Header[] headers = {new RecordHeader("a", bytes("1")), new RecordHeader("null", null), new RecordHeader("", bytes("")),
            new RecordHeader("a", bytes("2"))};
        List<SimpleRecord> records = new ArrayList<>(List.of(
            new SimpleRecord(TIME, bytes("key"), bytes("value")),
            new SimpleRecord(TIME - 1_000_000, null, bytes("no key")),
            new SimpleRecord(TIME + 63, bytes("tombstone"), null),
            new SimpleRecord(TIME + 64, null, (byte[]) null),
            new SimpleRecord(TIME - 3, bytes(""), bytes("")),
            new SimpleRecord(TIME + 1, bytes("headers"), bytes("v"), headers)));
        for (int i = 0; i < 90; i++) { // offset deltas of one byte and of two
            records.add(new SimpleRecord(TIME + 100L * i, bytes("key " + i), i % 10 == 0 ? null : bytes("value " + i)));
        }
        return records;
    }

    // Blocks of every codec begin and end inside of these.
    private static List<SimpleRecord> large() {
        StringBuilder text = new StringBuilder();
        for (int i = 0; text.length() < 200_000; i++) {
            text.append("line ").append(i % 1000).append(" of a long value\n");
        }
        byte[] noise = new byte[5000];
        new Random(1).nextBytes(noise);
        return List.of(
            new SimpleRecord(TIME, bytes("text"), bytes(text.toString())),
            new SimpleRecord(TIME + 1, bytes("noise"), noise),
            new SimpleRecord(TIME + 2, bytes("zeros"), new byte[300_000]));
    }

    private static DefaultRecordBatch marker(ControlRecordType type, int coordinatorEpoch) {
        return only(MemoryRecords.withEndTransactionMarker(1L << 33, TIME, 6, 4000L, (short) 2,
            new EndTransactionMarker(type, coordinatorEpoch)));
    }

    // As the log cleaner does: a tombstone that stays, or the marker of a transaction without records, sets the horizon.
    private static DefaultRecordBatch filter(DefaultRecordBatch batch, Predicate<Record> keep) {
        ByteBuffer in = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(in);
        in.flip();
        ByteBuffer out = MemoryRecords.readableRecords(in).filterTo(
            new MemoryRecords.RecordFilter(TIME, HORIZON - TIME) {
                @Override
                protected BatchRetentionResult checkBatchRetention(RecordBatch b) {
                    return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, b.isControlBatch());
                }

                @Override
                protected boolean shouldRetainRecord(RecordBatch b, Record r) {
                    return keep.test(r);
                }
            }, ByteBuffer.allocate(1 << 20), BufferSupplier.NO_CACHING).outputBuffer();
        out.flip();
        return only(MemoryRecords.readableRecords(out));
    }

    private static DefaultRecordBatch only(MemoryRecords records) {
        MutableRecordBatch only = null;
        for (MutableRecordBatch b : records.batches()) {
            if (only != null) {
                throw new IllegalStateException("more than one batch");
            }
            only = b;
        }
        return (DefaultRecordBatch) only;
    }

    private static void save(Path dir, String name, DefaultRecordBatch batch) throws IOException {
        batch.ensureValid();
        ByteBuffer out = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(out);
        Files.write(dir.resolve(name + ".batch"), out.array());
        Files.writeString(dir.resolve(name + ".txt"), describe(batch));
    }

    // What Java reads.

    private static void read(Path dir) throws IOException {
        int good = 0;
        int bad = 0;
        List<Path> files;
        try (Stream<Path> all = Files.list(dir)) {
            files = all.filter(f -> f.toString().endsWith(".batch")).sorted().toList();
        }
        for (Path file : files) {
            String want = Files.readString(Path.of(file.toString().replaceAll("batch$", "txt")));
            String got;
            try {
                DefaultRecordBatch batch = only(MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file))));
                batch.ensureValid();
                got = describe(batch);
                int passed = 0;
                try (CloseableIterator<Record> records = batch.skipKeyValueIterator(BufferSupplier.NO_CACHING)) {
                    for (; records.hasNext(); passed++) {
                        records.next();
                    }
                }
                if (passed != batch.countOrNull()) {
                    got = "skips " + passed + " records\n" + got;
                }
            } catch (RuntimeException e) {
                got = e + "\n";
            }
            if (got.equals(want)) {
                good++;
            } else {
                bad++;
                System.out.println(file + " differs\nwant\n" + want + "got\n" + got);
            }
        }
        System.out.println(good + " batches are equal, " + bad + " are not");
        if (bad > 0 || good == 0) {
            System.exit(1);
        }
    }

    private static String describe(DefaultRecordBatch b) {
        StringBuilder s = new StringBuilder();
        s.append("offsets ").append(b.baseOffset()).append(" to ").append(b.lastOffset());
        s.append(" epoch ").append(b.partitionLeaderEpoch()).append('\n');
        s.append("producer ").append(b.producerId()).append(" epoch ").append(b.producerEpoch());
        s.append(" sequences ").append(b.baseSequence()).append(" to ").append(b.lastSequence()).append('\n');
        s.append("codec ").append(b.compressionType().name);
        s.append(b.timestampType() == TimestampType.LOG_APPEND_TIME ? " append-time" : "");
        s.append(b.isTransactional() ? " transactional" : "").append(b.isControlBatch() ? " control" : "");
        b.deleteHorizonMs().ifPresent(ms -> s.append(" horizon ").append(ms));
        s.append('\n');
        s.append("max timestamp ").append(b.maxTimestamp()).append(" records ").append(b.countOrNull()).append('\n');
        for (Record r : b) {
            r.ensureValid();
            s.append(r.offset()).append(" at ").append(r.timestamp());
            s.append(' ').append(text(r.hasKey() ? r.key() : null)).append(' ').append(text(r.hasValue() ? r.value() : null));
            for (Header h : r.headers()) {
                s.append(' ').append(text(ByteBuffer.wrap(bytes(h.key())))).append('=');
                s.append(text(h.value() == null ? null : ByteBuffer.wrap(h.value())));
            }
            s.append('\n');
        }
        return s.toString();
    }

    // Hexadecimal, or the length and the CRC-32 of what is long.
    private static String text(ByteBuffer field) {
        if (field == null) {
            return "null";
        }
        byte[] p = new byte[field.remaining()];
        field.get(p);
        if (p.length <= 40) {
            return "[" + HexFormat.of().formatHex(p) + "]";
        }
        CRC32 crc = new CRC32();
        crc.update(p);
        return String.format("[%d bytes, %08x]", p.length, crc.getValue());
    }

    private static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }
}
