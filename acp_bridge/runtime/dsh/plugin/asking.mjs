/** Who may do what: the bridge's verdict on calls, approvals, sandboxes, questions to the user. */

import { knobsOf, setPolicy } from './options.mjs'
import { mount } from './tools.mjs'
import { messageOf } from './values.mjs'

/**
 * Before every call: the bridge's verdict, unless the runtime has refused already.
 *
 * Without a verdict nothing runs. What the runtime asks for after an `ask` comes to `approve`.
 */
export async function judge(bridge, exec, next) {
  const decision = await next()
  if (!bridge.judges || exec.agent === undefined || decision.kind !== 'allow') return decision
  let judgement
  try {
    const params = callParams(bridge, exec)
    judgement = await bridge.ask('bridge/judge', params, exec.signal)
  } catch (error) {
    if (exec.signal?.aborted) return { kind: 'cancel' }
    const reason = `the client could not decide whether this call may run: ${messageOf(error)}`
    return { kind: 'deny', reason }
  }
  const { verdict, reason, sandbox } = judgement ?? {}
  if (verdict === 'run') {
    mark(bridge, exec, sandbox ?? undefined)
    return decision
  }
  if (verdict === 'ask') {
    // Counts only if the call gets to run, which the user's answer decides in between.
    mark(bridge, exec, 'danger-full-access')
    return { kind: 'ask', reason: reason ?? 'the client wants to be asked' }
  }
  return { kind: 'deny', reason: reason ?? 'the client refused this call' }
}

/**
 * Note the sandbox that a call may have. A call that wishes for less gets what it wishes: the user
 * saw the wish, and the runtime refuses an escalation to what is no wider than what is there.
 */
function mark(bridge, exec, sandbox) {
  const modes = bridge.packages.sandbox.SANDBOX_MODES
  const wish = modes.indexOf(exec.arguments?.sandbox_permissions)
  const granted = wish >= 0 && wish < modes.indexOf(sandbox) ? modes[wish] : sandbox
  bridge.judged.set(exec, { sessionId: exec.agent.session.id, sandbox: granted, isRunning: false })
}

function callParams(bridge, exec) {
  const { session } = exec.agent
  const given = exec.arguments
  const isObject = given !== null && typeof given === 'object' && !Array.isArray(given)
  return {
    sessionId: session.id,
    rootSessionId: bridge.root(exec.agent).session.id,
    callId: String(exec.callId),
    toolName: exec.name,
    arguments: isObject ? given : {},
    cwd: bridge.ctx.get('workingDirectory')?.get(session) ?? session.header.cwd,
  }
}

/**
 * Around a call's body: what runs inside is known to come from this call.
 *
 * Chains of promises that a body starts (a subagent, a job that wakes its own agent) outlive it and
 * see the same judgement, so it says itself whether it still holds.
 */
export function runJudged(bridge, exec, next) {
  const judgement = bridge.judged.get(exec)
  return bridge.running.run(judgement, async () => {
    if (judgement === undefined) return next()
    judgement.isRunning = true
    try {
      return await next()
    } finally {
      judgement.isRunning = false
    }
  })
}

/** The sandbox that was allowed for the call that runs now, in the place of its session's. */
export function widenSandbox(ctx, bridge) {
  const prototype = bridge.packages.sandbox?.SandboxPolicyService?.prototype
  if (typeof prototype?.resolve !== 'function') return
  const original = prototype.resolve
  prototype.resolve = function resolve(request = {}) {
    const call = bridge.running.getStore()
    const isItsOwn = call?.isRunning && call.sessionId === request.session?.id
    const widened = isItsOwn && request.mode === undefined ? { mode: call.sandbox } : {}
    return original.call(this, { ...request, ...widened })
  }
  ctx.effect(() => () => { prototype.resolve = original }, 'acp-bridge-control: sandbox')
}

/** Whether a call may run, as the user says; nobody to say: no. */
export async function approve(bridge, request) {
  const { session } = request.agent
  const call = callRow(session, request.callId)
  try {
    const answer = await bridge.ask('bridge/approve', {
      sessionId: session.id,
      rootSessionId: bridge.root(request.agent).session.id,
      parentSessionId: parentOf(session),
      callId: request.callId,
      toolName: request.toolName,
      arguments: call?.arguments,
      turn: call?.turn,
      step: call?.step,
      reason: request.reason ?? request.displayReason?.en ?? '',
    }, request.signal)
    return answer?.outcome ?? 'unavailable'
  } catch (error) {
    if (request.signal?.aborted) return 'cancelled'
    bridge.fault('approve', error)
    return 'unavailable'
  }
}

/** The user's answers; one of another shape would fail inside the tool, so it counts as none. */
export async function askUser(bridge, request) {
  const { session } = request.agent
  const review = request.questions.find((one) => one.intent?.kind === 'plan-review')
  const answer = await bridge.ask('bridge/ask_user', {
    sessionId: session.id,
    callId: request.wait?.callId ?? review?.intent.callId ?? callRow(session)?.callId,
    questions: request.questions.map((one) => ({
      id: one.id,
      question: one.question,
      header: one.header,
      detail: one.detail,
      options: one.options,
      multiSelect: one.multiSelect === true,
      planReview: one.intent?.kind === 'plan-review',
    })),
  }, request.signal)
  const fits = (one) => typeof one?.id === 'string' && Array.isArray(one.selected)
  if (Array.isArray(answer?.answers) && answer.answers.every(fits)) {
    return { answers: answer.answers }
  }
  const { UserQuestionError } = bridge.packages.questions
  throw new UserQuestionError('The user did not answer the questions.', 'ASK_CANCELLED')
}

function parentOf({ header }) {
  return header.origin === 'subagent' ? header.parentSession : undefined
}

/** The log's row of a call, or of the newest one. */
function callRow(session, callId) {
  const isIt = ({ type, data }) => type === 'tool/call' && (callId ?? data.callId) === data.callId
  return session.snapshotEvents().findLast(isIt)?.data
}

/**
 * A subagent is born with a policy that refuses every ask, and without its root's MCP servers.
 *
 * What goes wrong is told: it must not fail the subagent's birth.
 */
export async function equipChild(bridge, agent) {
  try {
    const root = bridge.root(agent)
    if (root === agent || !bridge.greeted) return
    const rootAsks = knobsOf(bridge, root.session).policy === 'ask'
    if (bridge.judges && rootAsks) setPolicy(bridge, agent, 'ask')
    await mount(bridge, agent)
  } catch (error) {
    bridge.fault(`subagent ${agent.session.id}`, error)
  }
}

/** An approved plan is carried out: the policy of plan mode would refuse every ask. */
export function planOver(bridge, session) {
  const agent = bridge.ctx.agents.get(session.id)
  if (!bridge.judges || agent === undefined) return
  // Not within the row's own dispatch, which others still wait for.
  queueMicrotask(bridge.guarded('plan over', () => {
    const { sandbox, policy } = knobsOf(bridge, session)
    if (policy === 'never' && sandbox === 'read-only') setPolicy(bridge, agent, 'ask')
  }))
}
