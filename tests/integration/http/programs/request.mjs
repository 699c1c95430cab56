// Streams standard input to a URL by http.request, and prints the status and the answer.
import http from "node:http";

const [url, type] = process.argv.slice(2);
const request = http.request(url, { method: "POST", headers: { "Content-Type": type } }, (answer) => {
  process.stdout.write(`${answer.statusCode}\n`);
  answer.pipe(process.stdout);
});
process.stdin.pipe(request);
