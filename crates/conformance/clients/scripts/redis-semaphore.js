// redis-semaphore: mutexes, semaphores, multi-semaphores and their Redlock forms.
"use strict";

const { Mutex, MultiSemaphore, RedlockMutex, RedlockSemaphore, Semaphore } = require("redis-semaphore");
const { connect, run, say, sleep, words } = require("./driver");

const OPTIONS = { lockTimeout: 400, acquireTimeout: 100, retryInterval: 10, refreshInterval: 0 };

// How many of ten are inside at once, each waiting for its turn.
async function crowd(make) {
  let inside = 0, most = 0;
  await Promise.all(
    [...Array(10).keys()].map(async () => {
      const lock = make();
      await lock.acquire();
      most = Math.max(most, ++inside);
      await sleep(5);
      inside--;
      await lock.release();
    }),
  );
  return most;
}

run(async () => {
  const client = connect();
  const patient = { ...OPTIONS, acquireTimeout: 10000 };
  const first = new Mutex(client, "m", OPTIONS);
  const second = new Mutex(client, "m", OPTIONS);
  await first.acquire();
  say("mutex", [first.isAcquired, await second.tryAcquire()]);
  say("mutex second", (await words(second.acquire())).replace(/\d+/g, "N"));
  await first.release();
  say("mutex freed", [await second.tryAcquire(), await client.exists("mutex:m")]);
  await second.release();
  say("mutex crowd", await crowd(() => new Mutex(client, "mc", patient)));

  const held = [1, 2].map(() => new Semaphore(client, "s", 2, OPTIONS));
  await Promise.all(held.map((one) => one.acquire()));
  say("semaphore full", await new Semaphore(client, "s", 2, OPTIONS).tryAcquire());
  await held[0].release();
  say("semaphore has room", await new Semaphore(client, "s", 2, OPTIONS).tryAcquire());
  await sleep(450);
  say("semaphore timed out", await new Semaphore(client, "s", 1, OPTIONS).tryAcquire());
  say("semaphore crowd", (await crowd(() => new Semaphore(client, "sc", 3, patient))) <= 3);

  const three = new MultiSemaphore(client, "ms", 5, 3, OPTIONS);
  await three.acquire();
  say("multi", [await new MultiSemaphore(client, "ms", 5, 3, OPTIONS).tryAcquire(), await new MultiSemaphore(client, "ms", 5, 2, OPTIONS).tryAcquire()]);
  await three.release();
  say("multi left", await client.zcard("semaphore:ms"));

  const refreshed = new Mutex(client, "r", { ...OPTIONS, lockTimeout: 100, refreshInterval: 30 });
  await refreshed.acquire();
  await sleep(250);
  say("refreshed", await client.exists("mutex:r"));
  await refreshed.release();

  say("redlock mutex", await crowd(() => new RedlockMutex([client], "rm", patient)));
  say("redlock semaphore", (await crowd(() => new RedlockSemaphore([client], "rs", 3, patient))) <= 3);
});
