// BullMQ: nearly all of its scripts, from adding jobs in each of their forms to obliterating a queue.
"use strict";

const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const { connection, run, say, sleep, until } = require("./driver");

const opened = [];
function keep(thing) {
  thing.on("error", () => {});
  opened.push(thing);
  return thing;
}

async function counts(queue) {
  return queue.getJobCounts();
}

// Priorities, delays, lifo, custom names: the order in which one worker takes them.
async function order() {
  const queue = keep(new Queue("order", { connection }));
  await queue.pause();
  for (let i = 0; i < 12; i++) await queue.add("job", { i }, { jobId: `p${i}`, priority: i % 4 });
  await queue.add("job", { i: 100 }, { jobId: "lifo", lifo: true });
  await queue.addBulk([1, 2, 3].map((i) => ({ name: "bulk", data: { i }, opts: { jobId: `b${i}`, delay: 100 * i } })));
  say("order counts", await counts(queue));
  say("order priorities", await queue.getCountsPerPriority([0, 1, 2, 3]));
  await (await queue.getJob("p3")).changePriority({ priority: 1 });
  await (await queue.getJob("b3")).changeDelay(1);
  await (await queue.getJob("b2")).promote();
  const seen = [];
  keep(new Worker("order", async (job) => void seen.push(job.id), { connection }));
  await queue.resume();
  await until("all jobs are done", async () => (await queue.getCompletedCount()) === 16);
  say("order of jobs", seen.filter((id) => !id.startsWith("b")));
  say("order delayed", seen.filter((id) => id.startsWith("b")).sort());
  say("order end", await counts(queue));
}

async function retries() {
  const queue = keep(new Queue("retries", { connection }));
  const events = keep(new QueueEvents("retries", { connection }));
  await events.waitUntilReady();
  const tries = {};
  keep(
    new Worker(
      "retries",
      async (job) => {
        tries[job.id] = (tries[job.id] ?? 0) + 1;
        await job.updateProgress(50);
        await job.log(`try ${tries[job.id]}`);
        if (tries[job.id] < job.data.wanted) throw new Error(`try ${tries[job.id]} of ${job.data.wanted}`);
        return { tries: tries[job.id] };
      },
      { connection, concurrency: 5 },
    ),
  );
  const jobs = [];
  for (let i = 1; i <= 5; i++) {
    const backoff = i % 2 ? { type: "fixed", delay: 20 } : { type: "exponential", delay: 5 };
    jobs.push(await queue.add("job", { wanted: Math.min(i, 4) }, { jobId: `r${i}`, attempts: 3, backoff }));
  }
  const outcomes = await Promise.all(
    jobs.map((job) => job.waitUntilFinished(events).then((value) => value, (error) => error.message)),
  );
  say("retries outcomes", outcomes);
  say("retries counts", await counts(queue));
  const failed = await queue.getFailed();
  say("retries failed", failed.map((job) => [job.id, job.failedReason, job.attemptsMade]).sort());
  say("retries logs", (await queue.getJobLogs("r5")).logs);
  await failed[0].retry();
  await queue.retryJobs({ count: 10 });
  await until("the rest is done", async () => (await queue.getCompletedCount()) === 5);
  say("retries end", await counts(queue));
}

async function flows() {
  const flow = keep(new FlowProducer({ connection }));
  const queue = keep(new Queue("flows", { connection }));
  const child = (id, opts = {}) => ({ name: "child", queueName: "flows", data: { id }, opts: { jobId: id, ...opts } });
  await flow.add({
    name: "parent",
    queueName: "flows",
    data: {},
    opts: { jobId: "parent" },
    children: [
      child("c1"),
      child("c2", { priority: 3 }),
      { ...child("c3"), children: [child("g1"), child("g2", { delay: 50 })] },
      child("bad", { ignoreDependencyOnFailure: true }),
    ],
  });
  await flow.add({ name: "parent", queueName: "flows", opts: { jobId: "lost" }, children: [child("bad2", { failParentOnFailure: true })] });
  say("flows counts", await counts(queue));
  const parent = await queue.getJob("parent");
  say("flows dependencies", await parent.getDependenciesCount());
  keep(
    new Worker(
      "flows",
      async (job) => {
        if (job.id.startsWith("bad")) throw new Error("a bad child");
        return Object.values(await job.getChildrenValues()).length;
      },
      { connection, concurrency: 3 },
    ),
  );
  await until("both parents are done", async () => {
    const states = await Promise.all(["parent", "lost"].map((id) => queue.getJobState(id)));
    return states[0] === "completed" && states[1] === "failed";
  });
  say("flows parent", (await queue.getJob("parent")).returnvalue);
  say("flows ignored", Object.values(await (await queue.getJob("parent")).getIgnoredChildrenFailures()));
  say("flows lost", (await queue.getJob("lost")).failedReason.replace(/\S+:bad2/, "bad2"));
  say("flows end", await counts(queue));
}

async function repeats() {
  const queue = keep(new Queue("repeats", { connection }));
  const seen = [];
  const worker = keep(new Worker("repeats", async (job) => void seen.push(job.name), { connection }));
  await queue.upsertJobScheduler("every", { every: 30, limit: 4 }, { name: "tick", data: { x: 1 } });
  await queue.upsertJobScheduler("cron", { pattern: "0 0 1 1 *" }, { name: "year" });
  await until("four ticks", async () => seen.length >= 4);
  await sleep(100);
  say("repeats seen", seen);
  say("repeats schedulers", (await queue.getJobSchedulers()).map((scheduler) => scheduler.key).sort());
  say("repeats removed", [await queue.removeJobScheduler("cron"), await queue.removeJobScheduler("none")]);
  await worker.close();
  say("repeats counts", await counts(queue));
}

async function limits() {
  const queue = keep(new Queue("limits", { connection }));
  const begun = Date.now();
  await queue.addBulk([...Array(6).keys()].map((i) => ({ name: "job", data: { i } })));
  keep(new Worker("limits", async () => {}, { connection, limiter: { max: 2, duration: 150 } }));
  await until("six jobs", async () => (await queue.getCompletedCount()) === 6);
  say("limits slow enough", Date.now() - begun >= 250);
  const twice = [];
  for (let i = 0; i < 3; i++) {
    twice.push((await queue.add("same", {}, { jobId: `d${i}`, delay: 10000, deduplication: { id: "one", ttl: 5000 } })).id);
  }
  say("limits deduplicated", twice);
  say("limits deduplication id", await queue.getDeduplicationJobId("one"));
  say("limits freed", await queue.removeDeduplicationKey("one"));
}

async function cleaning() {
  const queue = keep(new Queue("cleaning", { connection }));
  for (let i = 0; i < 30; i++) await queue.add("job", { i }, { jobId: `c${i}`, delay: i % 3 ? 0 : 60000, priority: i % 5 });
  say("cleaning waiting", (await queue.getWaiting(0, 3)).map((job) => job.id));
  say("cleaning ranges", (await queue.getJobs(["waiting", "delayed", "prioritized"], 0, 4, true)).map((job) => job.id));
  say("cleaning removed", [await queue.remove("c1"), await queue.remove("none")]);
  say("cleaning cleaned", (await queue.clean(0, 5, "delayed")).length);
  const job = await queue.getJob("c2");
  await job.updateData({ i: "changed" });
  say("cleaning data", (await queue.getJob("c2")).data);
  say("cleaning state", await Promise.all(["c2", "c5", "c0", "none"].map((id) => queue.getJobState(id))));
  await queue.drain(true);
  say("cleaning drained", await counts(queue));
  await queue.add("job", {});
  await queue.obliterate({ force: true });
  say("cleaning obliterated", await counts(queue));
}

// A worker that takes jobs by hand, and one whose job stalls.
async function byHand() {
  const queue = keep(new Queue("hand", { connection }));
  const worker = keep(new Worker("hand", null, { connection, lockDuration: 300, stalledInterval: 100, maxStalledCount: 1 }));
  await queue.addBulk([1, 2, 3, 4].map((i) => ({ name: "job", data: { i }, opts: { jobId: `h${i}` } })));
  const token = "token";
  const first = await worker.getNextJob(token);
  await first.extendLock(token, 1000);
  await first.moveToCompleted("done", token, false);
  const second = await worker.getNextJob(token);
  await second.moveToFailed(new Error("by hand"), token, false);
  const third = await worker.getNextJob(token);
  await third.moveToDelayed(Date.now() + 100000, token);
  const fourth = await worker.getNextJob(token);
  say("hand wrong token", await fourth.moveToCompleted("x", "other", false).then(() => "moved", (error) => error.message));
  await worker.startStalledCheckTimer();
  await until("the fourth is found stalled", async () => (await queue.getJobState("h4")) === "waiting");
  say("hand counts", await counts(queue));
}

run(async () => {
  for (const part of [order, retries, flows, repeats, limits, cleaning, byHand]) await part();
  await Promise.all(opened.map((thing) => thing.close()));
});
