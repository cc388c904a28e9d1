// What the terminal asks the API.

import { Api } from "../../api/client";
import type { Mint, Minted } from "./connection";
import type { Access } from "./protocol";

/** The machine of a terminal. */
export interface Machine {
  project: string;
  allocation: string;
}

interface SessionItem {
  id: string;
  created_by: string;
  created_at: string;
  last_attached_at?: string;
}

interface TokenIssued {
  token: string;
  session_id: string;
  url: string;
}

const path = ({ project, allocation }: Machine) =>
  `/api/v1/projects/${encodeURIComponent(project)}/allocations/${encodeURIComponent(allocation)}`;

export class TerminalQueries implements Mint {
  constructor(
    private readonly api: Api,
    private readonly machine: Machine,
  ) {}

  async mint(session: string | null, access: Access): Promise<Minted> {
    const body = session === null ? { access } : { access, session_id: session };
    const issued = await this.api.post<TokenIssued>(`${path(this.machine)}/terminal-token`, body);
    return { token: issued.token, sessionId: issued.session_id, url: issued.url };
  }

  /** What people call the machine. */
  async machineName(): Promise<string> {
    const allocation = await this.api.get<{ name?: string }>(path(this.machine));
    return allocation.name ?? this.machine.allocation;
  }

  /** The session that the person attached to last, if one is open: a second tab is told of the first instead of
   *  leaving sessions behind. */
  async sessionOpen(): Promise<string | null> {
    const [me, sessions] = await Promise.all([
      this.api.get<{ id: string }>("/api/v1/me"),
      this.api.get<{ items: SessionItem[] }>(`${path(this.machine)}/terminal-sessions?open=true&page_size=100`),
    ]);
    const own = sessions.items.filter((session) => session.created_by === me.id);
    const usedAt = (session: SessionItem) => Date.parse(session.last_attached_at ?? session.created_at);
    return own.sort((one, other) => usedAt(other) - usedAt(one))[0]?.id ?? null;
  }
}
