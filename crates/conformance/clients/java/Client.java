// What an application does with Jedis, against the server on 127.0.0.1:<port>.
//
// Each step prints `ok <step>` when it has passed; the first thing that is not as it should be ends the program.

import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.util.SafeEncoder;

public class Client {
    static final String NOT_A_NUMBER = "ERR value is not an integer or out of range";
    static int port;

    interface Step {
        void run() throws Exception;
    }

    static DefaultJedisClientConfig.Builder config() {
        return DefaultJedisClientConfig.builder().timeoutMillis(10_000);
    }

    static Jedis connect(DefaultJedisClientConfig.Builder config) {
        return new Jedis(new HostAndPort("127.0.0.1", port), config.build());
    }

    static Jedis connect() {
        return connect(config());
    }

    static void expect(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    static String errorOf(Step step) throws Exception {
        try {
            step.run();
        } catch (JedisDataException error) {
            return error.getMessage();
        }
        return "no error";
    }

    static void expectError(String text, Step step) throws Exception {
        expect(errorOf(step), text);
    }

    static void connectStep() {
        try (Jedis client = connect(config().clientName("bean"))) {
            expect(client.ping(), "PONG");
            expect(client.echo("hello"), "hello");
            expect(client.clientGetname(), "bean");
            expect(client.info("server").contains("redis_version:7.2.4\r\n"), true);
            expect(client.clientList().contains("lib-name=jedis"), true);
        }
    }

    static void respStep(DefaultJedisClientConfig.Builder config, int version) {
        try (Jedis client = connect(config)) {
            expect(client.configGet("maxmemory-policy"), Map.of("maxmemory-policy", "noeviction"));
            expect(client.clientInfo().contains(" resp=" + version + " "), true);
            expect(client.get("absent"), null);
            expect(client.mget("absent", "missing"), Arrays.asList(null, null));
        }
    }

    static void pipelineStep() {
        try (Jedis client = connect()) {
            Pipeline pipe = client.pipelined();
            IntStream.range(0, 1000).forEach(number -> pipe.set("pipe:" + number, "" + number));
            List<Response<String>> gets =
                IntStream.range(0, 1000).mapToObj(number -> pipe.get("pipe:" + number)).toList();
            pipe.sync();
            IntStream.range(0, 1000).forEach(number -> expect(gets.get(number).get(), "" + number));
        }
    }

    static void transactionStep() {
        try (Jedis client = connect()) {
            Transaction transaction = client.multi();
            transaction.set("balance", "10");
            transaction.incrBy("balance", 5);
            transaction.get("balance");
            expect(transaction.exec(), List.of("OK", 15L, "15"));
            transaction = client.multi();
            transaction.set("word", "text");
            transaction.incr("word");
            transaction.set("after", "1");
            List<Object> replies = transaction.exec();
            expect(((JedisDataException) replies.get(1)).getMessage(), NOT_A_NUMBER);
            expect(replies.get(2), "OK");
            transaction = client.multi();
            transaction.set("balance", "0");
            transaction.discard();
            expect(client.get("balance"), "15");
        }
    }

    static void watchStep() {
        try (Jedis client = connect(); Jedis other = connect()) {
            client.set("watched", "1");
            client.watch("watched");
            other.set("watched", "2");
            Transaction transaction = client.multi();
            transaction.set("watched", "3");
            expect(transaction.exec(), null);
            expect(client.get("watched"), "2");
            client.watch("watched");
            transaction = client.multi();
            transaction.set("watched", "4");
            expect(transaction.exec(), List.of("OK"));
        }
    }

    static void errorsStep() throws Exception {
        try (Jedis client = connect()) {
            client.set("word", "text");
            expectError(NOT_A_NUMBER, () -> client.incr("word"));
            expectError("ERR wrong number of arguments for 'get' command",
                () -> client.sendCommand(Protocol.Command.GET));
            expectError("ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
                () -> client.sendCommand(() -> SafeEncoder.encode("NOSUCH"), "a", "b"));
            expectError("ERR DB index is out of range", () -> client.select(99));
            expect(client.get("word"), "text");
        }
    }

    static void binaryStep() {
        byte[] key = new byte[256 + 6];
        IntStream.range(0, 256).forEach(at -> key[at] = (byte) at);
        System.arraycopy("\r\n$3\r\n".getBytes(), 0, key, 256, 6);
        try (Jedis client = connect()) {
            client.set(key, key);
            expect(Arrays.equals(client.get(key), key), true);
            expect(client.exists(Arrays.copyOf(key, 200)), false);
        }
    }

    static void largeStep() {
        String value = "0123456789abcdef".repeat(1 << 18);
        try (Jedis client = connect()) {
            client.set("large", value);
            expect(client.get("large").equals(value), true);
            expect(client.strlen("large"), 4L << 20);
        }
    }

    static void expiryStep() throws Exception {
        try (Jedis client = connect()) {
            client.set("short", "x", SetParams.setParams().px(50));
            client.set("long", "x", SetParams.setParams().ex(100));
            long left = client.ttl("long");
            expect(left > 0 && left <= 100, true);
            expect(client.persist("long"), 1L);
            expect(client.ttl("long"), -1L);
            for (int tries = 0; client.get("short") != null; tries++) {
                expect(tries < 200, true);
                Thread.sleep(10);
            }
        }
    }

    static void scanStep() {
        try (Jedis client = connect()) {
            client.flushDB();
            IntStream.range(0, 2000).forEach(number -> client.set("scan:" + number, ""));
            IntStream.range(0, 500).forEach(number -> client.set("other:" + number, ""));
            Set<String> found = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page = client.scan(cursor, new ScanParams().match("scan:*").count(100));
                found.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            expect(found.size(), 2000);
            expect(client.dbSize(), 2500L);
        }
    }

    static void parallelStep() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try (RedisClient client = RedisClient.create("127.0.0.1", port)) {
            client.del("counter");
            IntStream.range(0, 2000).forEach(each -> threads.submit(() -> client.incr("counter")));
            threads.shutdown();
            expect(threads.awaitTermination(20, TimeUnit.SECONDS), true);
            expect(client.get("counter"), "2000");
        }
    }

    static void authStep() throws Exception {
        String wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        try (Jedis client = connect()) {
            client.configSet("requirepass", "open sesame");
            // Its handshake begins with HELLO, whose error goes on to explain itself.
            expect(errorOf(() -> connect(config()).ping()).startsWith("NOAUTH "), true);
            expectError(wrong, () -> connect(config().resp2().password("wrong")).ping());
            expectError(wrong, () -> connect(config().resp3().password("wrong")).ping());
            expect(connect(config().resp2().password("open sesame")).ping(), "PONG");
            expect(connect(config().resp3().password("open sesame")).ping(), "PONG");
            client.configSet("requirepass", "");
        }
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("connect", Client::connectStep);
        steps.put("resp2", () -> respStep(config().resp2(), 2));
        steps.put("resp3", () -> respStep(config().resp3(), 3));
        steps.put("pipeline", Client::pipelineStep);
        steps.put("transaction", Client::transactionStep);
        steps.put("watch", Client::watchStep);
        steps.put("errors", Client::errorsStep);
        steps.put("binary", Client::binaryStep);
        steps.put("large", Client::largeStep);
        steps.put("expiry", Client::expiryStep);
        steps.put("scan", Client::scanStep);
        steps.put("parallel", Client::parallelStep);
        steps.put("auth", Client::authStep);
        for (Map.Entry<String, Step> step : steps.entrySet()) {
            step.getValue().run();
            System.out.println("ok " + step.getKey());
        }
    }
}
