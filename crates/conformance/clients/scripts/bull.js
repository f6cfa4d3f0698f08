// Bull, the elder of BullMQ, with scripts of its own.
"use strict";

const Bull = require("bull");
const { connection, run, say, until } = require("./driver");

const made = [];
function queueOf(name, options = {}) {
  const queue = new Bull(name, { redis: connection, ...options });
  queue.on("error", () => {});
  made.push(queue);
  return queue;
}

async function order() {
  const queue = queueOf("order");
  await queue.pause();
  for (let i = 0; i < 12; i++) await queue.add({ i }, { jobId: `p${i}`, priority: 1 + (i % 4) });
  await queue.add({ i: 100 }, { jobId: "lifo", lifo: true });
  await queue.addBulk([1, 2].map((i) => ({ data: { i }, opts: { jobId: `b${i}`, delay: 100 * i } })));
  say("order counts", await queue.getJobCounts());
  await (await queue.getJob("b2")).promote();
  const seen = [];
  queue.process(async (job) => void seen.push(job.id));
  await queue.resume();
  await until("all jobs are done", async () => (await queue.getCompletedCount()) === 15);
  say("order of jobs", seen.filter((id) => !id.startsWith("b")));
  say("order end", await queue.getJobCounts());
}

async function retries() {
  const queue = queueOf("retries");
  const tries = {};
  queue.process(4, async (job) => {
    tries[job.id] = (tries[job.id] ?? 0) + 1;
    await job.progress(10);
    await job.log(`try ${tries[job.id]}`);
    if (tries[job.id] < job.data.wanted) throw new Error(`try ${tries[job.id]}`);
    return tries[job.id];
  });
  const jobs = [];
  for (let i = 1; i <= 4; i++) jobs.push(await queue.add({ wanted: i }, { jobId: `r${i}`, attempts: 3, backoff: 10 }));
  say("retries outcomes", await Promise.all(jobs.map((job) => job.finished().then((value) => value, (error) => error.message))));
  say("retries counts", await queue.getJobCounts());
  say("retries logs", (await queue.getJobLogs("r3")).logs);
  await (await queue.getJob("r4")).retry();
  await until("the last is done", async () => (await queue.getCompletedCount()) === 4);
  say("retries end", await queue.getJobCounts());
}

async function repeats() {
  const queue = queueOf("repeats", { limiter: { max: 100, duration: 1000 } });
  let ticks = 0;
  queue.process(async () => void ticks++);
  await queue.add({ x: 1 }, { repeat: { every: 30, limit: 3 } });
  await until("three ticks", async () => ticks >= 3);
  say("repeats ticks", ticks);
  await queue.add({ x: 1 }, { repeat: { cron: "0 0 1 1 *" } });
  const repeatable = await queue.getRepeatableJobs();
  say("repeats kept", repeatable.map((job) => job.cron ?? "every").sort());
  await queue.removeRepeatable({ cron: "0 0 1 1 *" });
}

async function cleaning() {
  const queue = queueOf("cleaning");
  for (let i = 0; i < 20; i++) await queue.add({ i }, { jobId: `c${i}`, delay: i % 3 ? 0 : 60000 });
  say("cleaning removed", [await queue.removeJobs("c1?"), (await queue.clean(0, "delayed", 2)).length].map((x) => x?.length ?? x));
  const job = await queue.getNextJob();
  say("cleaning taken", job.id);
  await job.moveToFailed(new Error("by hand"), true);
  say("cleaning states", await Promise.all(["c1", "c2", "c9"].map(async (id) => (await queue.getJob(id))?.getState())));
  await queue.empty();
  say("cleaning counts", await queue.getJobCounts());
  await queue.obliterate({ force: true });
  say("cleaning end", await queue.getJobCounts());
}

run(async () => {
  for (const part of [order, retries, repeats, cleaning]) await part();
  await Promise.all(made.map((queue) => queue.close()));
});
