// Redlock: lock, extend, unlock, also of several resources, and who comes second.
"use strict";

const Redlock = require("redlock");
const { connect, run, say, sleep, words } = require("./driver");

run(async () => {
  const client = connect();
  const redlock = new Redlock([client], { retryCount: 3, retryDelay: 20, retryJitter: 5 });
  redlock.on("clientError", () => {});
  const lock = await redlock.lock("one", 1000);
  say("held", [await client.exists("one"), lock.resource]);
  say("second", await words(redlock.lock("one", 1000)));
  const longer = await lock.extend(5000);
  say("extended", (await client.pttl("one")) > 1000);
  await longer.unlock();
  say("freed", await client.exists("one"));
  say("unlocked twice", await words(longer.unlock()));
  const many = await redlock.lock(["a", "b", "c"], 1000);
  say("many", await client.exists("a", "b", "c"));
  say("overlap", await words(redlock.lock(["c", "d"], 100)));
  say("none of an overlap", await client.exists("d"));
  await many.unlock();
  say("many freed", await client.exists("a", "b", "c"));
  const short = await redlock.lock("short", 30);
  await sleep(60);
  say("expired", [await client.exists("short"), await words(short.unlock())]);
  let inside = 0, most = 0;
  await Promise.all(
    [...Array(20).keys()].map(async () => {
      const patient = new Redlock([client], { retryCount: 1000, retryDelay: 5, retryJitter: 5 });
      const mine = await patient.lock("shared", 2000);
      most = Math.max(most, ++inside);
      await sleep(2);
      inside--;
      await mine.unlock();
    }),
  );
  say("at most", most);
});
