"""A real endpoint on loopback: answers chats with a summary and counts tokens, and remembers what it was asked."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Endpoint:
    def __init__(self, url):
        self.url = url
        self.prompts = []
        self.keys = []
        self.bodies = []
        self.delay = 0.0
        self.template = None
        self.engine = "llama.cpp"


@contextmanager
def endpoint():
    server = Server(("127.0.0.1", 0), Handler)
    server.told = Endpoint(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """A client that was killed is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        told = self.server.told
        self.answer({"chat_template": told.template} if self.path == "/props" and told.template else None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(self.tokens(body) if self.path == "/tokenize" else self.chat(body))

    def tokens(self, body):
        if self.server.told.engine == "vllm":
            return {"count": len(body["prompt"].split()), "max_model_len": 1}
        return {"tokens": [1] * len(body["content"].split())} if self.server.told.engine == "llama.cpp" else None

    def chat(self, body):
        told = self.server.told
        told.prompts.append(body["messages"][0]["content"])
        told.keys.append(self.headers.get("Authorization"))
        told.bodies.append(body)
        time.sleep(told.delay)
        message = {"role": "assistant", "content": "It ran the tests."}
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "m", "usage": usage}

    def answer(self, value):
        content = json.dumps(value or {"error": "no"}).encode()
        self.send_response(200 if value else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass
