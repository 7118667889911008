/* A client in JavaScript. Args: as Exchange.java's. */
'use strict';

const crypto = require('crypto');
const { Consumer, Message, Producer } = require('ali-ons');

const [nameServers, name, task, ...words] = process.argv.slice(2);
const options = { httpclient: {}, nameSrv: nameServers, pollNameServerInteval: 1000, rebalanceInterval: 1000 };

async function send(producer, way, count) {
  for (let number = 0; number < count; number++) {
    const key = `${name}-${way}-${number}`;
    const topic = way === 'again' ? way : `from-${name}`;
    const message = new Message(topic, way, `${key} é漢 ${way === 'large' ? 'x'.repeat(8000) : ''}`);
    message.keys = [key];
    message.properties.word = 'é漢';
    if (way === 'delayed') message.delayTimeLevel = 1;
    if (way === 'ordered') message.shardingKey = `k${number % 3}`;
    const result = await (way === 'first' ? sendAtLast(producer, message) : producer.send(message));
    if (result.sendStatus !== 'SEND_OK') throw new Error(result.sendStatus);
  }
}

async function sendAtLast(producer, message) {
  for (;;) {
    try {
      return await producer.send(message);
    } catch (error) {
      console.log(`again after ${error}`);
      await new Promise(resolve => setTimeout(resolve, 500));
    }
  }
}

async function sendAll() {
  const producer = new Producer({ ...options, producerGroup: `senders-${name}`, sendMsgTimeout: 30000 });
  await producer.ready();
  for (const word of words) {
    const [way, count] = word.split(':');
    await send(producer, way, Number(count));
  }
  console.log('sent');
  process.exit(0);
}

async function consumeAll() {
  const [tags, ...topics] = words;
  const consumer = new Consumer({ ...options, consumerGroup: `${name}-concurrent` });
  consumer.on('error', error => console.log(String(error)));
  for (const topic of topics) {
    consumer.subscribe(topic, tags, async message => {
      if (message.tags === 'again' && message.reconsumeTimes === 0) return Consumer.ACTION_RETRY;
      const hash = crypto.createHash('md5').update(message.body).update(message.properties.word).digest('hex');
      console.log(`got concurrent ${message.keys} ${message.tags} ${message.reconsumeTimes} ${hash}`);
    });
  }
  await consumer.ready();
}

(task === 'send' ? sendAll() : consumeAll()).catch(error => {
  console.log(error);
  process.exit(1);
});
