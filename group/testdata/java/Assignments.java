import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Writes what Kafka's own client says, gets and assigns. README.md says how to run this and what the files mean. */
public final class Assignments {
    public static void main(String[] args) throws IOException {
        Path dir = Path.of(args[0]);
        Files.createDirectories(dir);
        Files.writeString(dir.resolve("bytes.txt"), bytes());
        Files.writeString(dir.resolve("assignments.txt"), assignments());
    }

    // Bytes.

    private static String bytes() {
        StringBuilder out = new StringBuilder();
        List<TopicPartition> none = List.of();
        List<TopicPartition> owned = tps("b-1 a-0 a-2 b-0");
        subscription(out, "plain", List.of("a"), null, none, -1, null);
        subscription(out, "nothing", List.of(), null, none, -1, null);
        subscription(out, "unsorted", List.of("b", "a", "c.d_e-f"), null, none, -1, null);
        subscription(out, "data", List.of("a", "b"), "\0xyz", none, -1, null);
        subscription(out, "no-data", List.of("a", "b"), "", none, -1, null);
        subscription(out, "owned", List.of("a", "b"), null, owned, 7, null);
        subscription(out, "rack", List.of("a", "b"), null, none, -1, "eu-1");
        subscription(out, "everything", List.of("a", "b"), "xyz", owned, Integer.MAX_VALUE, "eu-1");

        assignment(out, "nothing", none, null);
        assignment(out, "plain", tps("a-0 a-2 b-0 b-1"), null);
        assignment(out, "unsorted", tps("b-1 a-2 a-0 b-0"), null);
        assignment(out, "data", tps("a-0 a-2"), "xyz");
        assignment(out, "no-data", tps("a-0"), "");

        sticky(out, "nothing", none, 3);
        sticky(out, "one", tps("a-0"), 0);
        sticky(out, "some", tps("a-0 a-2 b-0 b-1 c-5"), 7);
        return out.toString();
    }

    private static void subscription(StringBuilder out, String name, List<String> topics, String data, List<TopicPartition> owned, int generation, String rack) {
        for (short version = 0; version <= 3; version++) {
            Subscription s = new Subscription(topics, wrap(data), owned, generation, Optional.ofNullable(rack));
            line(out, "subscription", name, version, ConsumerProtocol.serializeSubscription(s, version),
                (topics.isEmpty() ? "-" : String.join(",", topics)) + " " + hex(data) + " " + text(owned) + " " + generation + " " + (rack == null ? "-" : rack));
        }
    }

    private static void assignment(StringBuilder out, String name, List<TopicPartition> tps, String data) {
        for (short version = 0; version <= 3; version++) {
            line(out, "assignment", name, version, ConsumerProtocol.serializeAssignment(new Assignment(tps, wrap(data)), version), hex(data) + " " + text(tps));
        }
    }

    private static void sticky(StringBuilder out, String name, List<TopicPartition> tps, int generation) {
        line(out, "sticky", name, 1, stickyData(tps, generation), text(tps) + " " + generation);
    }

    /** What the sticky assignor has a member say that has got these in this generation. */
    private static ByteBuffer stickyData(List<TopicPartition> tps, int generation) {
        StickyAssignor a = new StickyAssignor();
        a.onAssignment(new Assignment(tps), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        return a.subscriptionUserData(new HashSet<>());
    }

    private static void line(StringBuilder out, String kind, String name, int version, ByteBuffer b, String meaning) {
        byte[] bytes = new byte[b.remaining()];
        b.get(bytes);
        out.append(String.join(" ", kind, name, "" + version, HexFormat.of().formatHex(bytes), meaning)).append('\n');
    }

    private static ByteBuffer wrap(String data) {
        return data == null ? null : ByteBuffer.wrap(data.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(String data) {
        return data == null ? "null" : "x" + HexFormat.of().formatHex(data.getBytes(StandardCharsets.UTF_8));
    }

    private static List<TopicPartition> tps(String text) {
        List<TopicPartition> out = new ArrayList<>();
        for (String tp : text.split(" ")) {
            int at = tp.lastIndexOf('-');
            out.add(new TopicPartition(tp.substring(0, at), Integer.parseInt(tp.substring(at + 1))));
        }
        return out;
    }

    private static String text(List<TopicPartition> tps) {
        return tps.isEmpty() ? "-" : tps.stream().map(TopicPartition::toString).collect(Collectors.joining(","));
    }

    // Assignments.

    private static final List<AbstractPartitionAssignor> ALL =
        List.of(new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor());

    private record Member(String id, String instance, List<String> topics, List<TopicPartition> owned) {}

    private static String assignments() {
        StringBuilder out = new StringBuilder();
        Random rng = new Random(1);
        for (int i = 0; i < 200; i++) {
            Map<String, Integer> topics = new TreeMap<>();
            for (int t = 1 + rng.nextInt(6); t > 0; t--) {
                topics.put("t" + t, rng.nextInt(8));
            }
            List<String> names = new ArrayList<>(topics.keySet());
            names.add("gone");
            boolean uniform = rng.nextInt(3) == 0;
            List<Member> members = new ArrayList<>();
            for (int m = 1 + rng.nextInt(9); m > 0; m--) {
                List<String> of = names.stream().filter(t -> uniform || rng.nextBoolean()).toList();
                members.add(new Member("m" + rng.nextInt(1000) + "-" + m, rng.nextInt(3) == 0 ? "i" + rng.nextInt(1000) + "-" + m : "-", of, new ArrayList<>()));
            }
            if (i % 2 == 1) {
                own(rng, topics, members);
            }
            write(out, topics, members);
        }
        // Two say of the same generation that they own the same: all subscribe to the same, or not.
        for (String more : List.of("t1", "t1,t2")) {
            Map<String, Integer> topics = new TreeMap<>(Map.of("t1", 3, "t2", 1));
            write(out, topics, List.of(
                new Member("a", "-", List.of("t1"), tps("t1-0 t1-1")),
                new Member("b", "-", List.of("t1"), tps("t1-0 t1-2")),
                new Member("c", "-", List.of(more.split(",")), List.of())));
        }
        return out.toString();
    }

    /** Gives most partitions to any of the members that subscribe to them. */
    private static void own(Random rng, Map<String, Integer> topics, List<Member> members) {
        topics.forEach((topic, n) -> {
            for (int p = 0; p < n; p++) {
                Member m = members.get(rng.nextInt(members.size()));
                if (m.topics.contains(topic) && rng.nextInt(5) > 0) {
                    m.owned.add(new TopicPartition(topic, p));
                }
            }
        });
    }

    private static void write(StringBuilder out, Map<String, Integer> topics, List<Member> members) {
        out.append("topics");
        topics.forEach((t, n) -> out.append(' ').append(t).append('=').append(n));
        out.append('\n');
        for (Member m : members) {
            out.append(String.join(" ", "member", m.id, m.instance, m.topics.isEmpty() ? "-" : String.join(",", m.topics), text(m.owned))).append('\n');
        }
        for (AbstractPartitionAssignor a : ALL) {
            Map<String, Subscription> subscriptions = new TreeMap<>();
            for (Member m : members) {
                boolean says = a instanceof StickyAssignor && !m.owned.isEmpty();
                Subscription s = new Subscription(m.topics, says ? stickyData(m.owned, 7) : null, m.owned, 7, Optional.empty());
                s.setGroupInstanceId(m.instance.equals("-") ? Optional.empty() : Optional.of(m.instance));
                subscriptions.put(m.id, s);
            }
            Map<String, List<PartitionInfo>> infos = new TreeMap<>();
            topics.forEach((t, n) -> {
                List<PartitionInfo> of = new ArrayList<>();
                for (int p = 0; p < n; p++) {
                    of.add(new PartitionInfo(t, p, Node.noNode(), new Node[0], new Node[0]));
                }
                if (n > 0 && members.stream().anyMatch(m -> m.topics.contains(t))) {
                    infos.put(t, of);
                }
            });
            new TreeMap<>(a.assignPartitions(infos, subscriptions)).forEach((id, tps) -> out.append(String.join(" ", a.name(), id, text(tps))).append('\n'));
        }
        out.append('\n');
    }
}
