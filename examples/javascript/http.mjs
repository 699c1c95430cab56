// Orders over HTTP, with nothing but Node: writes two, and reads them as a consumer of a group.
//
// The broker is the consumer, and remembers where the group is. A page is committed when it was printed: after a crash
// it comes again.
//
//     tidelog topic create orders --partitions 3
//     node examples/javascript/http.mjs http://127.0.0.1:8082

const BROKER = process.argv[2];
const V2 = "application/vnd.kafka.v2+json";
const TEXT = "application/vnd.kafka.text.v2+json"; // keys and values are strings
const ORDERS = [
  { key: "tea", value: '{"item": "tea", "count": 2}' },
  { key: "milk", value: '{"item": "milk", "count": 1}' },
];

/** Makes a request with a JSON body; gives the answer. */
async function ask(method, path, type, body) {
  const answer = await fetch(BROKER + path, {
    method,
    headers: { "Content-Type": type, Accept: type },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

await ask("POST", "/topics/orders", TEXT, { records: ORDERS });

const settings = { format: "text", "auto.offset.reset": "earliest" };
const created = await ask("POST", "/consumers/javascript-http", V2, settings);
const instance = `/consumers/javascript-http/instances/${created.instance_id}`;
try {
  await ask("POST", `${instance}/subscription`, V2, { topics: ["orders"] });
  for (let read = 0; read < ORDERS.length; ) {
    const page = await ask("GET", `${instance}/records?timeout=5000`, TEXT);
    for (const { partition, offset, value } of page) console.log(`orders-${partition}@${offset}: ${value}`);
    await ask("POST", `${instance}/offsets`, V2);
    read += page.length;
  }
} finally {
  await ask("DELETE", instance, V2); // its partitions go to others at once
}
