// What an application does with ioredis, against the server on 127.0.0.1:<port>.
//
// Each step prints `ok <step>` when it has passed; the first thing that is not as it should be ends the program.
"use strict";

const assert = require("node:assert/strict");
const { Redis } = require("ioredis");

const port = Number(process.argv[2]);
const NOT_A_NUMBER = "ERR value is not an integer or out of range";
const opened = [];

function connect(options = {}) {
  const client = new Redis({ port, host: "127.0.0.1", retryStrategy: null, maxRetriesPerRequest: 0, ...options });
  // What goes wrong is told by the command that meets it.
  client.on("error", () => {});
  opened.push(client);
  return client;
}

async function expectError(text, promise) {
  const got = await promise.then((reply) => `no error but ${reply}`, (error) => error.message);
  assert.equal(got, text);
}

async function stepConnect() {
  const client = connect({ connectionName: "node" });
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.echo("hello"), "hello");
  assert.equal(await client.client("GETNAME"), "node");
  assert.match(await client.info("server"), /\r\nredis_version:7\.2\.4\r\n/);
  const commands = await client.command("COUNT");
  assert.ok(commands > 50);
}

async function stepResp(version) {
  const client = connect({ protocol: version });
  assert.match(await client.client("INFO"), new RegExp(` resp=${version} `));
  assert.deepEqual(await client.config("GET", "maxmemory-policy"), ["maxmemory-policy", "noeviction"]);
  assert.equal(await client.get("absent"), null);
  assert.deepEqual(await client.mget("absent", "missing"), [null, null]);
}

async function stepPipeline() {
  const pipe = connect().pipeline();
  for (let number = 0; number < 1000; number++) pipe.set(`pipe:${number}`, number);
  for (let number = 0; number < 1000; number++) pipe.get(`pipe:${number}`);
  const replies = await pipe.exec();
  assert.equal(replies.length, 2000);
  for (let number = 0; number < 1000; number++) {
    assert.deepEqual(replies[number], [null, "OK"]);
    assert.deepEqual(replies[1000 + number], [null, String(number)]);
  }
}

async function stepTransaction() {
  const client = connect();
  const sums = await client.multi().set("balance", 10).incrby("balance", 5).get("balance").exec();
  assert.deepEqual(sums, [[null, "OK"], [null, 15], [null, "15"]]);
  const replies = await client.multi().set("word", "text").incr("word").set("after", "1").exec();
  assert.equal(replies[1][0].message, NOT_A_NUMBER);
  assert.deepEqual(replies[2], [null, "OK"]);
}

async function stepWatch() {
  const [client, other] = [connect(), connect()];
  await client.set("watched", 1);
  await client.watch("watched");
  await other.set("watched", 2);
  assert.equal(await client.multi().set("watched", 3).exec(), null);
  assert.equal(await client.get("watched"), "2");
  await client.watch("watched");
  assert.deepEqual(await client.multi().set("watched", 4).exec(), [[null, "OK"]]);
}

async function stepErrors() {
  const client = connect();
  await client.set("word", "text");
  await expectError(NOT_A_NUMBER, client.incr("word"));
  await expectError("ERR wrong number of arguments for 'get' command", client.call("GET"));
  await expectError(
    "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
    client.call("NOSUCH", "a", "b"),
  );
  await expectError("ERR DB index is out of range", client.select(99));
  assert.equal(await client.get("word"), "text");
}

async function stepBinary() {
  const client = connect();
  const key = Buffer.concat([Buffer.from([...Array(256).keys()]), Buffer.from("\r\n$3\r\n\0")]);
  const value = Buffer.concat([key, key]);
  await client.set(key, value);
  assert.deepEqual(await client.getBuffer(key), value);
  assert.equal(await client.exists(key.subarray(0, -1)), 0);
}

async function stepLarge() {
  const client = connect();
  const value = Buffer.alloc(4 << 20, "0123456789abcdef");
  await client.set("large", value);
  assert.ok(value.equals(await client.getBuffer("large")));
  assert.equal(await client.strlen("large"), 4 << 20);
}

async function stepExpiry() {
  const client = connect();
  await client.set("short", "x", "PX", 50);
  await client.set("long", "x", "EX", 100);
  const left = await client.ttl("long");
  assert.ok(left > 0 && left <= 100);
  assert.equal(await client.persist("long"), 1);
  assert.equal(await client.ttl("long"), -1);
  for (let tries = 0; (await client.get("short")) !== null; tries++) {
    assert.ok(tries < 200, "a key outlives its time to live");
    await new Promise((done) => setTimeout(done, 10));
  }
}

async function stepScan() {
  const client = connect();
  await client.flushdb();
  const pairs = (name, count) => Array.from({ length: count }, (_, number) => [`${name}:${number}`, number]).flat();
  await client.mset(pairs("scan", 2000));
  await client.mset(pairs("other", 500));
  const found = new Set();
  for await (const keys of client.scanStream({ match: "scan:*", count: 100 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 2000);
  assert.equal(await client.dbsize(), 2500);
}

async function stepParallel() {
  const clients = Array.from({ length: 8 }, () => connect({ enableAutoPipelining: true }));
  await clients[0].del("counter");
  const counted = clients.flatMap((client) => Array.from({ length: 250 }, () => client.incr("counter")));
  const seen = await Promise.all(counted);
  assert.equal(new Set(seen).size, 2000);
  assert.equal(await clients[0].get("counter"), "2000");
}

async function stepAuth() {
  const client = connect();
  await client.config("SET", "requirepass", "open sesame");
  // Its handshake begins with HELLO, whose error goes on to explain itself.
  await assert.rejects(connect().ping(), /^ReplyError: NOAUTH /);
  const text = "WRONGPASS invalid username-password pair or user is disabled.";
  await expectError(text, connect({ protocol: 2, enableReadyCheck: false }).auth("wrong"));
  assert.equal(await connect({ password: "open sesame" }).ping(), "PONG");
  assert.equal(await connect({ username: "default", password: "open sesame" }).ping(), "PONG");
  await client.config("SET", "requirepass", "");
}

const STEPS = {
  connect: stepConnect,
  resp2: () => stepResp(2),
  resp3: () => stepResp(3),
  pipeline: stepPipeline,
  transaction: stepTransaction,
  watch: stepWatch,
  errors: stepErrors,
  binary: stepBinary,
  large: stepLarge,
  expiry: stepExpiry,
  scan: stepScan,
  parallel: stepParallel,
  auth: stepAuth,
};

async function main() {
  for (const [name, step] of Object.entries(STEPS)) {
    await step();
    console.log(`ok ${name}`);
    opened.splice(0).forEach((client) => client.disconnect());
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
