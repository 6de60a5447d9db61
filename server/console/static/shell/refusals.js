// Why a sign-in with the identity provider did not work, and what to do, by the code in ?error=.
const operator = 'Ask an operator of this server';

export const refusals = {
  sign_in_expired: 'This sign-in was not started in this browser, took longer than 10 minutes, or was finished already. Sign in again.',
  sign_in_denied: 'You cancelled the sign-in, or your identity provider refused it. Sign in again, or ask its administrator for access.',
  sign_in_failed: `The server cannot use the response of your identity provider. ${operator}: the log has the cause under this request id.`,
  clocks_differ: `The clocks of the server and of your identity provider differ by more than a minute. ${operator} to correct its clock.`,
  issuer_unavailable: `Your identity provider does not respond to the server. Try again in a minute, then ask an operator: the log has the cause.`,
  unknown_user: `Your identity provider knows you, but this server has no such user. ${operator} to create your user. It needs your `
    + 'e-mail address, or the sub of your account as external_id.',
  subject_mismatch: `The user with your e-mail address belongs to another account of your identity provider. ${operator} to set external_id of your user.`,
  user_inactive: `Your user is not active, or no longer a member of the organization. ${operator} to change this.`,
  not_a_member: `Your user is not a member of the organization, or of any. ${operator} or an owner of the organization to add you.`,
  rate_limited: 'Your organization makes too many requests at the moment. Try again in a minute.',
  too_many_failures: 'Too many sign-ins from your network have failed. Try again in a minute.',
  storage_quota_exceeded: `Your organization has stored too much today. Try again after midnight UTC. ${operator} for another plan.`,
  storage_unavailable: 'The server cannot read its database at the moment. Try again in a minute.',
};
