/** What a session has chosen: mode, model, title; and what there is to choose. */

import { requireText } from './values.mjs'

export function knobsOf({ ctx }, session) {
  const sandbox = ctx.get('sandboxPolicy')
  return {
    sandbox: sandbox.overrideOf(session) ?? sandbox.defaultMode,
    policy: ctx.get('approval').effectivePolicy(session),
  }
}

export function setPolicy(bridge, agent, policy) {
  if (knobsOf(bridge, agent.session).policy !== policy) {
    bridge.packages.approval.setApprovalPolicy(agent.session, policy)
  }
}

/** The rows are those of the runtime's own presets, so that it understands the log without us. */
export function setMode(bridge, { sessionId, sandbox, policy, planning }) {
  const agent = bridge.agent(sessionId)
  const { SANDBOX_MODES, setSandboxMode } = bridge.packages.sandbox
  if (!SANDBOX_MODES.includes(sandbox)) {
    throw new Error(`sandbox must be one of ${SANDBOX_MODES.join(', ')}`)
  }
  if (policy !== 'ask' && policy !== 'never') throw new Error('policy must be ask or never')
  const before = knobsOf(bridge, agent.session)
  if (before.sandbox !== sandbox || before.policy !== policy) {
    agent.session.append('permission/preset', { preset: sandbox })
  }
  for (const one of [agent, ...bridge.descendants(agent)]) {
    if (knobsOf(bridge, one.session).sandbox !== sandbox) setSandboxMode(one.session, sandbox)
    setPolicy(bridge, one, policy)
  }
  bridge.ctx.get('planMode').set(agent, planning === true)
  return {}
}

/** The row is that of the runtime's own menu: without it a choice would be gone with the process. */
export async function setModel(bridge, { sessionId, model }) {
  const agent = bridge.agent(sessionId)
  const selection = selectionOf(model)
  if (selection === undefined) throw new Error('model must name a provider and a model')
  await bridge.ctx.get('llm').resolveCallConfig({ ...selection })
  select(bridge, agent, selection)
  agent.session.append('model/selection', selection)
  return {}
}

/** Let a session use a selection from its next step on: installed once, then only changed. */
export function select(bridge, agent, current) {
  const extras = bridge.extrasOf(agent.session.id)
  if (extras.selection !== undefined) {
    extras.selection.current = current
  } else if (current !== undefined) {
    extras.selection = { current, assembled: undefined }
    bridge.packages.agent.installModelSelection(agent.ctx, extras.selection)
  }
}

export function selectionOf(model) {
  if (typeof model?.provider !== 'string' || typeof model.model !== 'string') return undefined
  const effort = model.effort ? { reasoningEffort: model.effort } : {}
  return { provider: model.provider, model: model.model, ...effort }
}

/** What the log's last request used: by itself the runtime goes back to that of `initialize`. */
export function storedSelection(session) {
  const header = session.requestHeader()
  if (header === undefined) return undefined
  const { provider, model, reasoningEffort } = header.config
  const isDefault = header.adapterDefaults?.reasoningEffort === true
  return selectionOf({ provider, model, effort: isDefault ? undefined : reasoningEffort })
}

export async function models({ ctx }) {
  const llm = ctx.get('llm')
  const found = []
  for (const provider of llm.listProviders()) {
    for (const { id } of await llm.listModels(provider.id)) {
      const info = await llm.resolveModelInfo(provider.id, id)
      found.push({
        provider: provider.id,
        model: id,
        title: info.name,
        contextWindow: info.context?.contextWindow,
        efforts: (info.reasoning?.efforts ?? []).map((effort) => String(effort.id)),
        defaultEffort: info.reasoning?.defaultEffort,
        takesImages: info.inputModalities?.includes('image') ?? false,
      })
    }
  }
  return { models: found }
}

export function state(bridge, { sessionId }) {
  const { ctx } = bridge
  const agent = bridge.agent(sessionId)
  const { session } = agent
  const chosen = bridge.extras.get(session.id)?.selection?.current ?? agent.options
  return {
    running: agent.status === 'running',
    cwd: ctx.get('workingDirectory')?.get(session) ?? session.header.cwd,
    model: { provider: chosen.provider, model: chosen.model, effort: chosen.reasoningEffort },
    ...knobsOf(bridge, session),
    planning: ctx.get('planMode')?.get(agent).active ?? false,
    title: ctx.get('sessionTitle')?.get(session)?.title,
    contextTokens: ctx.get('tokenMeter')?.measure(session).totalTokens,
    contextWindow: session.requestContext()?.contextWindow,
    lastSeq: session.seq - 1,
  }
}

export function rename(bridge, { sessionId, title }) {
  const { session } = bridge.agent(sessionId)
  const titles = bridge.ctx.get('sessionTitle')
  return { title: titles.rename(session, requireText(title, 'title')).title }
}
