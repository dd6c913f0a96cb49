"""httpbin on a port of 127.0.0.1, its access log on standard output."""

import sys

from httpbin import app
from werkzeug.serving import WSGIRequestHandler, run_simple


class Handler(WSGIRequestHandler):
    def log_request(self, code="-", size="-"):
        key = self.headers.get("Idempotency-Key", "-")
        sys.stdout.write(f"{self.command} {self.path} {int(code)} {key} {self.client_address[1]}\n")
        sys.stdout.flush()


run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=Handler)
