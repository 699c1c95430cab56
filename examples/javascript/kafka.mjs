// Orders over Kafka's protocol, with kafkajs: writes two, and reads them as a consumer of a group.
//
// kafkajs commits an order after `eachMessage` has returned: after a crash some come again.
//
//     tidelog topic create orders --partitions 3
//     npm ci --prefix examples/javascript
//     node examples/javascript/kafka.mjs 127.0.0.1:9092

import kafkajs from "kafkajs";

const ORDERS = [
  { key: "tea", value: '{"item": "tea", "count": 2}' },
  { key: "milk", value: '{"item": "milk", "count": 1}' },
];
const kafka = new kafkajs.Kafka({ brokers: process.argv[2].split(","), logLevel: kafkajs.logLevel.ERROR });

const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner, idempotent: true });
await producer.connect();
await producer.send({ topic: "orders", messages: ORDERS });
await producer.disconnect();

const consumer = kafka.consumer({ groupId: "javascript-kafka" });
await consumer.connect();
await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
let left = ORDERS.length;
await new Promise((resolve, reject) => {
  const eachMessage = async ({ topic, partition, message }) => {
    console.log(`${topic}-${partition}@${message.offset}: ${message.value}`);
    if (--left === 0) resolve();
  };
  consumer.run({ eachMessage }).catch(reject);
});
await consumer.disconnect();
