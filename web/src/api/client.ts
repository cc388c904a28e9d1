// Requests to the API with the person's access token, and its errors.

/** An answer of the API that is an error: its code decides, its words inform. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly suggestion: string,
    readonly retryAfterSeconds: number,
  ) {
    super(message);
  }
}

/** Nobody is signed in any more. */
export class SignedOut extends Error {}

/** Who gives access tokens. They are in memory only. */
export interface Tokens {
  /** Throws [SignedOut] when there are no more. */
  access(): Promise<string>;
}

/** So long an answer may take. */
const TIMEOUT_MS = 20_000;

export class Api {
  constructor(private readonly tokens: Tokens) {}

  get<T>(path: string): Promise<T> {
    return this.send<T>("GET", path, null);
  }

  post<T>(path: string, body: unknown): Promise<T> {
    return this.send<T>("POST", path, JSON.stringify(body));
  }

  private async send<T>(method: string, path: string, body: string | null): Promise<T> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (body !== null) headers["content-type"] = "application/json";
    headers["authorization"] = `Bearer ${await this.tokens.access()}`;
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(path, { method, headers, body, signal, credentials: "omit", redirect: "error" });
    const answer: unknown = await response.json().catch(() => null);
    if (response.ok) return answer as T;
    if (response.status === 401) throw new SignedOut();
    throw apiError(response, answer);
  }
}

function apiError(response: Response, answer: unknown): ApiError {
  const error = ((answer as { error?: unknown } | null)?.error ?? {}) as Record<string, unknown>;
  const text = (name: string) => (typeof error[name] === "string" ? error[name] : "");
  const message = text("message") || `The server answered with the status ${response.status}.`;
  const retryAfter = Number(response.headers.get("retry-after") ?? 0);
  const seconds = Number.isFinite(retryAfter) ? retryAfter : 0;
  return new ApiError(response.status, text("code"), message, text("suggestion"), seconds);
}
