"""A client of the UDP door in twenty lines, with nothing but the standard library.

Start a broker with `nexo serve`, then run `python examples/udp_client.py`. It subscribes to a
topic, publishes two messages to it and prints all that the topic keeps.
"""

import json
import socket
import sys


class UdpClient:
    """One socket is one address, and subscriptions belong to an address."""

    def __init__(self, host="127.0.0.1", port=9326, timeout=2.0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(timeout)  # a datagram may get lost: who hears nothing asks again
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
    client.ask("subscribe", "notizie")
    client.ask("publish", "notizie", payload="ciao")  # returns once it is on disk
    client.ask("publish", "notizie", payload={"ordine": 1, "articoli": ["pane", "vino"]})
    for message in client.ask("get", "notizie")["messages"]:
        print(message["timestamp"], message["payload"])
