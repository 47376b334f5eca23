// Batches of 1,000 by four local workers that go on while batches are full; LISTEN/NOTIFY.

const QUEUE = "bench";

export async function open(config, load) {
  const library = await load("pg-boss");
  const PgBoss = library.PgBoss ?? library.default;
  const boss = new PgBoss({ connectionString: config.url, useListenNotify: true });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  if (!(await boss.getQueue(QUEUE))) await boss.createQueue(QUEUE, { notify: true });
  return {
    enqueue: (text) => boss.send(QUEUE, { text }),
    enqueueBulk: (texts) => boss.insert(QUEUE, texts.map((text) => ({ data: { text } }))),
    close: () => boss.stop({ graceful: false }),
    async work(ledger) {
      await ledger.waitForStart();
      await boss.work(
        QUEUE,
        { batchSize: 1000, localConcurrency: 4, burstWhenBatchFull: true },
        async (jobs) => {
          for (const job of jobs) ledger.recordRun(job.data.text);
        },
      );
    },
  };
}
