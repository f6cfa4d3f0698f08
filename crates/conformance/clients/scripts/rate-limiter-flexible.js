// rate-limiter-flexible: its limiters on ioredis, in memory of the server.
"use strict";

const { BurstyRateLimiter, RateLimiterQueue, RateLimiterRedis } = require("rate-limiter-flexible");
const { connect, run, say, sleep } = require("./driver");

// Without the time that is left, which is the machine's.
async function taken(promise) {
  return promise.then(
    (now) => ["ok", now.consumedPoints, now.remainingPoints, now.isFirstInDuration],
    (now) => (now instanceof Error ? ["error", now.message] : ["refused", now.consumedPoints, now.remainingPoints]),
  );
}

run(async () => {
  const client = connect();
  const limiter = new RateLimiterRedis({ storeClient: client, points: 5, duration: 1, keyPrefix: "plain" });
  const outcomes = [];
  for (let i = 0; i < 7; i++) outcomes.push(await taken(limiter.consume("k", 1 + (i % 2))));
  say("consume", outcomes);
  say("get", [(await limiter.get("k")).consumedPoints, await limiter.get("none")]);
  say("ttl", (await client.pttl("plain:k")) > 0);
  await sleep(1100);
  say("after its time", await taken(limiter.consume("k")));
  say("penalty", [(await limiter.penalty("k", 3)).consumedPoints, (await limiter.reward("k", 2)).consumedPoints]);
  say("set", [(await limiter.set("k", 50, 0)).consumedPoints, await client.ttl("plain:k")]);
  say("deleted", [await limiter.delete("k"), await limiter.delete("k")]);
  const block = new RateLimiterRedis({ storeClient: client, points: 1, duration: 1, blockDuration: 60, keyPrefix: "block" });
  say("block", [await taken(block.consume("k")), await taken(block.consume("k")), (await client.ttl("block:k")) > 50]);
  await block.block("other", 30);
  say("blocked", await taken(block.consume("other")));
  const even = new RateLimiterRedis({ storeClient: client, points: 2, duration: 1, execEvenly: true, keyPrefix: "even" });
  say("evenly", [await taken(even.consume("k")), await taken(even.consume("k"))]);
  const bursty = new BurstyRateLimiter(
    new RateLimiterRedis({ storeClient: client, points: 1, duration: 5, keyPrefix: "b1" }),
    new RateLimiterRedis({ storeClient: client, points: 2, duration: 5, keyPrefix: "b2" }),
  );
  const burst = [];
  for (let i = 0; i < 4; i++) burst.push((await taken(bursty.consume("k")))[0]);
  say("bursty", burst);
  const queue = new RateLimiterQueue(new RateLimiterRedis({ storeClient: client, points: 3, duration: 1, keyPrefix: "queue" }));
  const begun = Date.now();
  for (let i = 0; i < 5; i++) await queue.removeTokens(1);
  say("queue waited", Date.now() - begun >= 500);
  const custom = new RateLimiterRedis({
    storeClient: client, points: 3, duration: 5, keyPrefix: "many", insuranceLimiter: undefined, rejectIfRedisNotReady: true,
  });
  const all = await Promise.all([...Array(30).keys()].map((i) => taken(custom.consume(`k${i % 3}`))));
  say("parallel", all.filter((one) => one[0] === "ok").length);
});
