"""Serves terminado's terminals on a port of loopback: a shell for each WebSocket."""

import sys

import terminado
import tornado.ioloop
import tornado.web


class Terminal(terminado.TermSocket):
    def open(self, *arguments):
        self.set_nodelay(True)
        super().open(*arguments)


shells = terminado.UniqueTermManager(shell_command=["bash", "--norc", "--noprofile"])
routes = [(r"/terminal", Terminal, {"term_manager": shells})]
tornado.web.Application(routes).listen(int(sys.argv[1]), "127.0.0.1")
tornado.ioloop.IOLoop.current().start()
