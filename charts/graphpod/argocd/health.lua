-- The health of an InferenceService (graphpod.dev/v1alpha1) for Argo CD, from the conditions that graphpod writes.
-- How to install it: docs/how-to/gitops.md, "Health in Argo CD".
--
--   Healthy      Ready: every asked pod serves on proved graphs, weaker ones than planned included (the message says so)
--   Degraded     Stalled: it will not get Ready without a change by somebody
--   Suspended    no pods are asked for, or they sleep by graphpod.dev/sleep, or graphpod.dev/paused keeps changes from being applied
--   Progressing  everything else: the operator or the pods are still working, or status speaks of an older spec

local function health(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "being deleted")
end
if obj.status == nil or obj.status.conditions == nil then
  return health("Progressing", "graphpod has not reconciled it yet")
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "graphpod has not reconciled this spec yet")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end

local function is(kind, status, reason)
  local found = conditions[kind]
  return found ~= nil and found.status == status and (reason == nil or found.reason == reason)
end

local function words(kind)
  return conditions[kind].reason .. ": " .. conditions[kind].message
end

if is("Stalled", "True") then
  return health("Degraded", words("Stalled"))
end
if is("Accepted", "True", "Paused") then
  return health("Suspended", words("Accepted"))
end
if is("WorkloadAvailable", "False", "Suspended") then
  return health("Suspended", words("WorkloadAvailable"))
end
if is("WorkloadAvailable", "False", "Sleeping") then
  return health("Suspended", words("WorkloadAvailable"))
end
if is("Ready", "True") then
  if is("Degraded", "True") then
    return health("Healthy", words("Degraded"))
  end
  return health("Healthy", words("Ready"))
end
if conditions["Ready"] ~= nil then
  return health("Progressing", words("Ready"))
end
return health("Progressing", "graphpod has not reported Ready yet")
