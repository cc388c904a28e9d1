// Signs the person in at the built-in issuer: authorization code with PKCE, as the client `gpuaas-console`.
//
// A browser that is signed in already comes back at once; another one meets the sign-in page first. Tokens are in memory
// only and are gone with the page. What must survive the redirect (the verifier, and where to return to) is in the session
// storage of the tab until then: it opens nothing without the code, which works once.

import { SignedOut, type Tokens } from "../api/client";

const CLIENT_ID = "gpuaas-console";
export const CALLBACK_PATH = "/terminal/signed-in";
const STORED = "gpuaas.sign-in";
/** Tokens are renewed so long before they expire. */
const EARLY_MS = 60_000;

interface Begun {
  state: string;
  verifier: string;
  returnTo: string;
}

/** Why there was no sign-in, in words for the person. */
export class SignInFailed extends Error {}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

/** Leaves for the issuer, which leads back to `returnTo`, a path of this origin. */
export async function signInBegin(returnTo: string): Promise<void> {
  // Only pages of a secure origin may hash.
  if (!isSecureContext) {
    throw new SignInFailed("Browsers sign in only over HTTPS, or on this computer itself. Use: gpuaas terminal");
  }
  const begun: Begun = { state: random(), verifier: random(), returnTo };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(begun.verifier));
  sessionStorage.setItem(STORED, JSON.stringify(begun));
  const query = new URLSearchParams({
    client_id: CLIENT_ID,
    response_type: "code",
    scope: "openid",
    redirect_uri: location.origin + CALLBACK_PATH,
    state: begun.state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
  });
  location.replace(`/auth/authorize?${query}`);
}

/** On the way back: takes the code out of the address, and exchanges it. */
export async function signInFinish(): Promise<Tokens> {
  const query = new URLSearchParams(location.search);
  const stored = sessionStorage.getItem(STORED);
  sessionStorage.removeItem(STORED);
  const begun = stored === null ? null : (JSON.parse(stored) as Begun);
  // Whatever comes next, the code is not left in the address.
  history.replaceState(null, "", begun?.returnTo ?? CALLBACK_PATH);
  const code = query.get("code");
  if (!begun || query.get("state") !== begun.state) {
    throw new SignInFailed("This sign-in was not begun in this tab. Open the terminal again.");
  }
  if (!code) throw new SignInFailed(query.get("error_description") ?? "The sign-in was refused.");
  const answer = await exchange({
    grant_type: "authorization_code",
    code,
    redirect_uri: location.origin + CALLBACK_PATH,
    code_verifier: begun.verifier,
  });
  return new MemoryTokens(answer);
}

interface TokenAnswer {
  access_token: string;
  expires_in: number;
  refresh_token?: string;
}

/** Throws [SignedOut] when the issuer refuses; other errors may pass. */
async function exchange(form: Record<string, string>): Promise<TokenAnswer> {
  const body = new URLSearchParams({ client_id: CLIENT_ID, ...form });
  const response = await fetch("/auth/token", { method: "POST", body, credentials: "omit", redirect: "error" });
  if (response.status === 400 || response.status === 401) throw new SignedOut();
  if (!response.ok) throw new Error(`the issuer answered with the status ${response.status}`);
  return (await response.json()) as TokenAnswer;
}

class MemoryTokens implements Tokens {
  private expiresAt: number;
  private renewal: Promise<void> | null = null;

  constructor(private answer: TokenAnswer) {
    this.expiresAt = expiry(answer);
  }

  async access(): Promise<string> {
    if (Date.now() >= this.expiresAt - EARLY_MS) {
      // Once at a time: a refresh token that is used twice ends the sign-in.
      this.renewal ??= this.renew().finally(() => (this.renewal = null));
      await this.renewal;
    }
    return this.answer.access_token;
  }

  private async renew(): Promise<void> {
    const token = this.answer.refresh_token;
    if (!token) throw new SignedOut();
    this.answer = await exchange({ grant_type: "refresh_token", refresh_token: token });
    this.expiresAt = expiry(this.answer);
  }
}

function expiry(answer: TokenAnswer): number {
  return Date.now() + answer.expires_in * 1000;
}
