// What the drivers of this folder share: a step that prints its outcome, and a way to wait.
//
// A driver takes the port as its argument. What it prints has to be the same whichever server it runs against: no times, no
// random names. The first thing that is not as it should be ends it.
"use strict";

const Redis = require("ioredis");

const port = Number(process.argv[2]);
const connection = { host: "127.0.0.1", port };

function connect(options = {}) {
  return new Redis({ ...connection, maxRetriesPerRequest: null, ...options });
}

function say(step, outcome) {
  console.log(`ok ${step}\t${JSON.stringify(outcome)}`);
}

// The outcome of a promise, or the words of its error.
function words(promise) {
  return promise.then((value) => value, (error) => `error: ${error.message ?? JSON.stringify(error)}`);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Asks until it is so; the drivers have no other clock.
async function until(what, isSo) {
  const end = Date.now() + 20000;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await sleep(10);
  }
}

function run(main) {
  main().then(
    () => process.exit(0),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { connect, connection, port, run, say, sleep, until, words };
