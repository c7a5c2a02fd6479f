/**
 * Tools of the bridge's: those of a session's MCP servers, which the bridge runs and calls.
 *
 * The runtime has an MCP client of its own, but one bad server would fail a whole opening there,
 * each subagent would start its own copies, and names, reasons and time limits would be others.
 */

import { requireText } from './values.mjs'

/** Replace what a session and its live subagents may call; holds from the next request on. */
export async function setTools(bridge, { sessionId, tools }) {
  const agent = bridge.agent(sessionId)
  if (!Array.isArray(tools)) throw new Error('tools must be a list')
  for (const tool of tools) requireText(tool?.name, 'the name of a tool')
  bridge.extrasOf(agent.session.id).tools = tools
  for (const one of [agent, ...bridge.descendants(agent)]) await mount(bridge, one, tools)
  return {}
}

/** Let an agent call these and none that it had before of us. Its end takes them away. */
export async function mount(bridge, agent, tools) {
  const before = bridge.mounted.get(agent)
  if (before === undefined && tools.length === 0) return
  const belt = before ?? await newBelt(bridge, agent)
  for (const dispose of belt.disposers.splice(0)) dispose()
  for (const tool of tools) {
    const definition = definitionOf(bridge, belt.ctx, tool)
    belt.disposers.push(belt.ctx.tools.register(definition))
  }
}

/** A plugin's context within the agent's: what is registered through it is the agent's alone. */
async function newBelt(bridge, agent) {
  const belt = { ctx: undefined, disposers: [] }
  await agent.ctx.plugin({
    name: 'acp-bridge-tools',
    inject: ['tools'],
    apply: (ctx) => { belt.ctx = ctx },
  })
  bridge.mounted.set(agent, belt)
  return belt
}

function definitionOf(bridge, ctx, { name, description, parameters }) {
  return bridge.packages.mcp.createMcpToolDefinition(ctx, {
    name,
    rawName: name,
    description: description ?? '',
    inputSchema: parameters,
    taskRequired: false,
    call: (args, exec) => bridge.ask('bridge/call_tool', {
      sessionId: exec.agent.session.id,
      rootSessionId: bridge.root(exec.agent).session.id,
      callId: String(exec.callId),
      toolName: name,
      arguments: args,
    }, exec.signal),
  })
}
