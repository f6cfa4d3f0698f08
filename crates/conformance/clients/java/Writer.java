// A writer of a cluster that keeps a model of what it wrote, with Jedis. What it is given and says is written in ../python/writer.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

public class Writer {
    static final int TRIES = 50;
    /** Of these, before a new client is tried. */
    static final int TRIES_OF_CLIENT = 25;

    static int port;
    static String prefix;
    static int keys;
    static String[] tags;
    static RedisClusterClient client;
    static final Random random = new Random(1);
    /** What each key may be; null: it is not there. */
    static final List<List<String>> models = new ArrayList<>();
    static int version;
    static long operations;
    static long errors;
    static long renewed;

    static RedisClusterClient connect() {
        return RedisClusterClient.builder()
                .nodes(Set.of(new HostAndPort("127.0.0.1", port)))
                .clientConfig(DefaultJedisClientConfig.builder().timeoutMillis(10_000).build())
                .build();
    }

    static void renew(Exception why) {
        System.err.println("a new client, for " + why);
        renewed++;
        client.close();
        client = connect();
    }

    interface Write {
        String run();
    }

    static void fault(String what) {
        System.out.println("FAULT " + what);
        System.exit(1);
    }

    static String shown(String value) {
        return value == null ? "absent" : value.substring(0, Math.min(20, value.length()));
    }

    static String fresh() {
        version++;
        return version + "-" + "x".repeat(version * 37 % 3000);
    }

    static String name(int at) {
        return "{" + tags[at % tags.length] + "}" + prefix + at;
    }

    static String[] pair(int at) {
        return new String[] {name(at) + "a", name(at) + "b"};
    }

    static String read(int at) {
        switch (at % 4) {
            case 0, 1:
                return client.get(name(at));
            case 2:
                Map<String, String> fields = client.hgetAll(name(at));
                if (fields.isEmpty()) return null;
                if (fields.size() != 2 || !Objects.equals(fields.get("f"), fields.get("g"))) fault(name(at) + " is torn");
                return fields.get("f");
            default:
                List<String> values = client.mget(pair(at));
                if (!Objects.equals(values.get(0), values.get(1))) {
                    fault(name(at) + " is torn: " + shown(values.get(0)) + ", " + shown(values.get(1)));
                }
                return values.get(0);
        }
    }

    /** What does it. What it may be then is put into `wanted`. */
    static Write write(int at, List<String> wanted) {
        if (at % 4 == 1) {
            for (String value : models.get(at)) wanted.add(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            return () -> Long.toString(client.incr(name(at)));
        }
        if (at % 4 == 0 && random.nextInt(5) == 0) {
            wanted.add(null);
            return () -> {
                client.del(name(at));
                return null;
            };
        }
        String value = fresh();
        wanted.add(value);
        return () -> {
            switch (at % 4) {
                case 0 -> client.set(name(at), value);
                case 2 -> client.hset(name(at), Map.of("f", value, "g", value));
                default -> client.mset(pair(at)[0], value, pair(at)[1], value);
            }
            return value;
        };
    }

    static void work() {
        int at = random.nextInt(keys);
        if (random.nextBoolean()) {
            change(at);
            return;
        }
        operations++;
        String got;
        try {
            got = read(at);
        } catch (JedisException error) {
            errors++;
            return;
        }
        expect(at, got);
    }

    static void change(int at) {
        operations++;
        List<String> wanted = new ArrayList<>();
        Write write = write(at, wanted);
        try {
            String got = write.run();
            if (!wanted.contains(got)) fault("INCR " + name(at) + " is " + got + ", not of " + wanted);
            models.set(at, only(got));
        } catch (JedisDataException error) {
            errors++;
        } catch (JedisException error) {
            errors++;
            wanted.addAll(models.get(at));
            models.set(at, wanted);
        }
    }

    static List<String> only(String value) {
        List<String> list = new ArrayList<>();
        list.add(value);
        return list;
    }

    static void expect(int at, String got) {
        if (!models.get(at).contains(got)) {
            fault(name(at) + " is " + shown(got) + ", not of " + models.get(at).stream().map(Writer::shown).toList());
        }
        models.set(at, only(got));
    }

    static String readInTheEnd(int at) throws InterruptedException {
        for (int tries = 1; ; tries++) {
            try {
                return read(at);
            } catch (JedisException error) {
                if (tries == TRIES) fault(name(at) + " cannot be read: " + error);
                if (tries == TRIES_OF_CLIENT) renew(error);
                Thread.sleep(100);
            }
        }
    }

    static void check() throws InterruptedException {
        int there = 0;
        for (int at = 0; at < keys; at++) {
            String got = readInTheEnd(at);
            expect(at, got);
            if (got != null) there += at % 4 == 3 ? 2 : 1;
        }
        System.out.println("checked " + operations + " " + errors + " " + there + " " + renewed);
    }

    public static void main(String[] args) throws Exception {
        prefix = args[1];
        keys = Integer.parseInt(args[2]);
        long pauseNs = 1_000_000_000L / Integer.parseInt(args[3]);
        tags = args[4].split(",");
        for (int at = 0; at < keys; at++) models.add(only(null));
        port = Integer.parseInt(args[0]);
        client = connect();
        for (int at = 0; at < keys; at++) change(at);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        long due = System.nanoTime();
        while (true) {
            due = Math.max(due + pauseNs, System.nanoTime() - 100_000_000L);
            long wait = due - System.nanoTime();
            if (wait > 0) Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
            if (input.ready()) {
                String line = input.readLine();
                if (line == null || line.equals("end")) return;
                check();
                input.readLine();
            }
            work();
        }
    }
}
