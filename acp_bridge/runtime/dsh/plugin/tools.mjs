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
  await mount(bridge, agent)
  for (const child of bridge.descendants(agent)) {
    try {
      await mount(bridge, child)
    } catch (error) {
      // It may just be ending: that is not the session's failure.
      bridge.fault(`tools of subagent ${child.session.id}`, error)
    }
  }
  return {}
}

/** Let an agent call what its root may, and nothing else of ours. Its end takes them away. */
export async function mount(bridge, agent) {
  const wanted = () => bridge.extras.get(bridge.root(agent).session.id)?.tools ?? []
  if (!bridge.mounted.has(agent)) {
    if (wanted().length === 0) return
    const made = newBelt(agent)
    bridge.mounted.set(agent, made)
    made.catch(() => bridge.mounted.delete(agent))
  }
  const belt = await bridge.mounted.get(agent)
  // What is wanted may have changed meanwhile; from here on nothing comes in between.
  for (const dispose of belt.disposers.splice(0)) dispose()
  for (const tool of wanted()) {
    belt.disposers.push(belt.ctx.tools.register(definitionOf(bridge, belt.ctx, tool)))
  }
}

/** A plugin's context within the agent's: what is registered through it is the agent's alone. */
async function newBelt(agent) {
  const belt = { ctx: undefined, disposers: [] }
  await agent.ctx.plugin({
    name: 'acp-bridge-tools',
    inject: ['tools'],
    apply: (ctx) => { belt.ctx = ctx },
  })
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
