"""An MCP server that misbehaves when asked to, for the tests. It speaks the protocol by hand, as of the handshake."""

import json
import os
import signal
import subprocess
import sys
import time


def say(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def answer(request, text, **more):
    say(request, {"content": [{"type": "text", "text": text}], **more})


def die(request):
    print("Traceback: the server has died", file=sys.stderr, flush=True)
    os._exit(3)


def die_once(request):
    mark = next(word.removeprefix("--mark=") for word in sys.argv if word.startswith("--mark="))
    if not os.path.exists(mark):
        open(mark, "w").close()
        die(request)
    answer(request, "survived")


def flood(request):
    while True:
        os.write(1, b"x" * 65536)


def chatter(request):
    notification = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    while True:
        os.write(1, json.dumps(notification).encode() + b"\nnonsense\n" + b"x" * 60000 + b"\n")


def complain(request):
    for _ in range(1000):
        os.write(2, b"e" * 65536)
    answer(request, "complained")


def child(request):
    answer(request, str(subprocess.Popen(["sleep", "98763"]).pid))


def runaway(request):
    """A process out of our reach that holds our pipes."""
    answer(request, str(subprocess.Popen(["sleep", "8"], start_new_session=True).pid))


def rename(request):
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
    answer(request, "there are other tools now")


def structured(request):
    say(request, {"content": [], "structuredContent": {"primes": [2, 3]}})


def resource(request):
    text = {"type": "resource", "resource": {"uri": "memo://1", "text": "inside"}}
    link = {"type": "resource_link", "uri": "memo://2", "name": "two"}
    say(request, {"content": [text, link, {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}]})


def nonsense(request):
    say(request, {"content": "no list"})


def refuse(request):
    error = {"code": -32000, "message": "I would rather not"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)


def slow(request):
    time.sleep(60)


WAYS = {f.__name__: f for f in (die, flood, chatter, complain, child, runaway, rename, structured, resource, nonsense)}
WAYS |= {
    "die_once": die_once,
    "refuse": refuse,
    "slow": slow,
    "echo": lambda request: answer(request, "echo"),
    "ignore": lambda request: None,
}

if "--stubborn" in sys.argv:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        info = {"name": "rogue", "version": "1"}
        say(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
    elif request["method"] == "tools/list":
        say(request, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in WAYS]})
    elif request["method"] == "tools/call":
        WAYS[request["params"]["name"]](request)
    elif "id" in request:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)

while "--stubborn" in sys.argv:
    time.sleep(1)
