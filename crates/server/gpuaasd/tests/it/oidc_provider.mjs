// An independent OpenID provider (npm oidc-provider) for tests: any name signs in, access tokens are JWTs.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [port, modules, audience] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/`));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'gpuaas-cli',
    token_endpoint_auth_method: 'none',
    application_type: 'native',
    redirect_uris: ['http://127.0.0.1/callback'],
    response_types: ['code'],
    grant_types: ['authorization_code', 'refresh_token'],
  }],
  pkce: { required: () => true },
  claims: { openid: ['sub', 'sid'], email: ['email', 'email_verified'], profile: ['name'] },
  async findAccount(_ctx, sub) {
    return { accountId: sub, claims: async () => ({ sub, name: sub, email: `${sub}@example.org`, email_verified: true }) };
  },
  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => audience,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'openid', audience, accessTokenFormat: 'jwt', accessTokenTTL: 600, jwt: { sign: { alg: 'RS256' } } }),
    },
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
