// Bee-Queue: its six scripts, by delays, retries, stalled jobs and removal.
"use strict";

const BeeQueue = require("bee-queue");
const { connection, run, say, until } = require("./driver");

run(async () => {
  const queue = new BeeQueue("bees", {
    redis: connection, activateDelayedJobs: true, stallInterval: 200, nearTermWindow: 500, delayedDebounce: 20,
  });
  queue.on("error", () => {});
  await queue.ready();
  const tries = {};
  const done = [];
  const failed = [];
  queue.on("job succeeded", (id, result) => done.push([id, result]));
  queue.on("job failed", (id, error) => failed.push([id, error.message]));
  for (let i = 1; i <= 8; i++) {
    const job = queue.createJob({ i }).setId(`j${i}`);
    if (i % 2) job.retries(2).backoff(i % 4 === 1 ? "fixed" : "exponential", 10);
    if (i === 6) job.delayUntil(Date.now() + 100);
    await job.save();
  }
  say("health", await queue.checkHealth().then(({ waiting, delayed, newestJob }) => [waiting, delayed, newestJob]));
  say("same id", await queue.createJob({ i: 1 }).setId("j1").save().then((job) => job.id));
  await queue.removeJob("j8");
  queue.process(3, async (job) => {
    tries[job.id] = (tries[job.id] ?? 0) + 1;
    job.reportProgress(tries[job.id]);
    if (job.data.i % 3 === 0 && tries[job.id] < 3) throw new Error(`try ${tries[job.id]}`);
    return job.data.i * 10;
  });
  await until("seven jobs ended", async () => {
    const health = await queue.checkHealth();
    return health.succeeded + health.failed === 7;
  });
  await until("seven events", async () => done.length + failed.length >= 7);
  say("done", done.sort());
  say("failed", failed.sort());
  say("tries", Object.entries(tries).sort());
  say("failed jobs", (await queue.getJobs("failed", { size: 10 })).map((job) => [job.id, job.status]).sort());
  say("stalled", await new Promise((resolve) => queue.checkStalledJobs((error, count) => resolve(error ?? count))));
  await queue.destroy();
  say("end", await queue.checkHealth().then((health) => health.succeeded + health.waiting));
  await queue.close(1000);
});
