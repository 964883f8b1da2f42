"""A small client for JSON over UDP that needs only the standard library.

Start a broker with `nexo serve`, then run `python examples/udp_client.py`. It subscribes to a
topic, publishes two messages and prints all messages that the topic keeps.
"""

import json
import socket
import sys


class UdpClient:
    """Uses one socket, because a subscription belongs to the address of its socket."""

    def __init__(self, host="127.0.0.1", port=9326, timeout=2.0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(timeout)  # a datagram may get lost: then ask again
        self.socket.connect((host, port))

    def ask(self, action, topic, **fields):
        request = {"action": action, "topic": topic, **fields}
        self.socket.send(json.dumps(request).encode("utf-8"))
        reply = json.loads(self.socket.recv(65536).decode("utf-8"))
        if reply["status"] == "error":
            raise RuntimeError(f"{reply['error']} ({reply['code']})")
        return reply


if __name__ == "__main__":
    client = UdpClient(port=int(sys.argv[1]) if len(sys.argv) > 1 else 9326)
    client.ask("subscribe", "news")
    client.ask("publish", "news", payload="hello")  # returns once it is on disk
    client.ask("publish", "news", payload={"order": 1, "items": ["bread", "wine"]})
    for message in client.ask("get", "news")["messages"]:
        print(message["timestamp"], message["payload"])
