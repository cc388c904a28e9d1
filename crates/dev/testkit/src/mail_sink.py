"""A mail server that keeps what it is given: one JSON file for each message, in the order of arrival.

    mail_sink.py <port> <directory>

Some addresses are answered as real servers answer: `later-…` is put off the first time, `never-…` is refused.
"""

import asyncio
import email
import email.policy
import json
import os
import sys

from aiosmtpd.smtp import SMTP


class Keep:
    def __init__(self, directory):
        self.directory, self.count, self.put_off = directory, 0, set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("never-"):
            return "550 5.1.1 there is no such mailbox"
        if address.startswith("later-") and address not in self.put_off:
            self.put_off.add(address)
            return "451 4.7.1 come again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        text, html = message.get_body(("plain",)), message.get_body(("html",))
        kept = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "headers": {name: str(value) for name, value in message.items()},
            "text": text.get_content() if text else "",
            "html": html.get_content() if html else "",
        }
        self.count += 1
        path = os.path.join(self.directory, f"{self.count:06}.json")
        with open(path + ".part", "w") as file:
            json.dump(kept, file)
        os.rename(path + ".part", path)
        return "250 kept"


async def main(port, directory):
    keep = Keep(directory)
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(keep), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
