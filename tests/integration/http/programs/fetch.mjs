// Streams standard input to a URL by fetch, and prints the status and the answer.
import { Readable } from "node:stream";

const [url, type] = process.argv.slice(2);
const body = Readable.toWeb(process.stdin);
const answer = await fetch(url, { method: "POST", headers: { "Content-Type": type }, body, duplex: "half" });
process.stdout.write(`${answer.status}\n${await answer.text()}`);
