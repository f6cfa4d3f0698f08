// Many jobs of BullMQ of every kind, for the CPU time that they cost the server: `jobs.js PORT [JOBS]`.
//
// Of 20 jobs 8 are plain, 4 delayed, 4 prioritized, 1 fails once, and 3 are two children and their parent; beside them a
// scheduler repeats one. Prints what became of them, which is the same on every server.
"use strict";

const { FlowProducer, Queue, Worker } = require("bullmq");
const { connection, run, say } = require("./driver");

const jobs = Number(process.argv[3] ?? 10000);
const REPEATS = 50;
const BATCH = 200;

function plain(i) {
  const opts = { jobId: `job-${i}`, removeOnComplete: i % 2 === 0 };
  const kind = i % 17;
  if (kind >= 8 && kind < 12) opts.delay = 1 + (i % 400);
  else if (kind >= 12 && kind < 16) opts.priority = 1 + (i % 10);
  else if (kind === 16) Object.assign(opts, { attempts: 2, backoff: { type: "fixed", delay: 20 } });
  return { name: "job", data: { i, fails: kind === 16, text: "some data that a job has with it" }, opts };
}

function family(i) {
  const child = (of) => ({ name: "child", queueName: "jobs", data: { i: of }, opts: { jobId: `child-${of}-${i}` } });
  return { name: "parent", queueName: "jobs", data: { i }, opts: { jobId: `parent-${i}` }, children: [child(1), child(2)] };
}

async function work(job) {
  if (job.data.fails && job.attemptsMade === 0) throw new Error("the first time");
  if (job.name === "parent") return Object.values(await job.getChildrenValues()).reduce((sum, one) => sum + one, 0);
  return job.data.i;
}

run(async () => {
  const queue = new Queue("jobs", { connection });
  const flow = new FlowProducer({ connection });
  const wanted = jobs + REPEATS;
  const seen = {};
  let sum = 0, failures = 0, ended = 0, finished;
  const all = new Promise((resolve) => (finished = resolve));
  const worker = new Worker("jobs", work, { connection, concurrency: 50 });
  worker.on("error", () => {});
  worker.on("failed", () => failures++);
  worker.on("completed", (job, value) => {
    seen[job.name] = (seen[job.name] ?? 0) + 1;
    sum += value;
    if (++ended === wanted) finished();
  });
  await queue.upsertJobScheduler("repeat", { every: 20, limit: REPEATS }, { name: "tick", data: { i: 1 } });
  for (let i = 0; i < jobs; i += BATCH) {
    const families = Math.floor((BATCH * 3) / 20 / 3);
    const single = BATCH - 3 * families;
    await Promise.all([
      queue.addBulk([...Array(single / 2).keys()].map((k) => plain(i + k))),
      ...[...Array(single / 2).keys()].map((k) => {
        const { name, data, opts } = plain(i + single / 2 + k);
        return queue.add(name, data, opts);
      }),
      ...[...Array(families).keys()].map((k) => flow.add(family(i + k))),
    ]);
  }
  await all;
  const counts = await queue.getJobCounts();
  say("jobs", { seen: Object.entries(seen).sort(), sum, failures, completed: counts.completed, left: counts.waiting + counts.delayed + counts.active });
  await Promise.all([worker.close(), queue.close(), flow.close()]);
});
