"""Keys that RocketMQ knows and rmqha does not use.

A broker.conf may hold them: they are accepted, and said once. Some ask for what must not be dropped in
silence (another store format): those are refused when they do.

Source: rocketmq-all-4.9.8, the setters of BrokerConfig, MessageStoreConfig, NettyServerConfig and
NettyClientConfig.
"""

from typing import Final

_FORMER: Final = frozenset(
    """
    abortFile checkTransactionMessageEnable storeCheckpoint storePathConsumeQueue storePathIndex
    """.split()  # noqa: SIM905 - as below
)
"""Keys of RocketMQ's early versions, which many a broker.conf still has; 4.9.8 passes over them in silence."""

UNUSED: Final[frozenset[str]] = _FORMER | frozenset(
    """
    adminBrokerThreadPoolNums autoDeleteUnusedStats bitMapLengthConsumeQueueExt
    brokerFastFailureEnable brokerTopicEnable channelNotActiveInterval clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
    clusterTopicEnable commercialBaseCount commercialBigCount commercialEnable commercialTimerCount
    commercialTransCount commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    compressedRegister configBlackList connectTimeoutMillis consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums debugLockEnable defaultQueryMaxNum
    deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly disableConsumeIfConsumerReadSlowly
    diskFallRecorded enableBatchPush enableCalcFilterBitMap
    enableDetailStat enablePropertyFilter enableScheduleAsyncDeliver enableScheduleMessageStats
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums expectConsumerNumUseFilter
    fastFailIfNoBufferInStorePool fetchNamesrvAddrByAddressServer filterDataCleanTimeSpan filterServerNums
    filterSupportRetry flushCommitLogTimed flushConsumeQueueLeastPages flushConsumerOffsetHistoryInterval
    flushDelayOffsetInterval flushLeastPagesWhenWarmMapedFile forceRegister heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode isolateLogEnable mappedFileSizeConsumeQueueExt maxDelayTime
    maxErrorRateOfBloomFilter maxLmqConsumeQueueNum maxMsgsNumBatch
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
    maxTransferCountOnMessageInMemory messageIndexSafe
    offsetCheckInSlave osPageCacheBusyTimeOutMills
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity redeleteHangedFileInterval regionId registerBrokerTimeoutMills
    replyThreadPoolQueueCapacity rmqAddressServerDomain
    rmqAddressServerSubGroup scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads startAcceptSendRequestTimeStamp
    traceOn
    transferMsgByHeap transientStorePoolEnable transientStorePoolSize
    useEpollNativeSelector useReentrantLockWhenPutMessage waitTimeMillsInHeartbeatQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue warmMapedFileEnable
    writeBufferHighWaterMark writeBufferLowWaterMark
    """.split()  # noqa: SIM905 - a paragraph reads better than 130 quoted lines
)

FORMER_NAMES: Final[dict[str, str]] = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Keys that RocketMQ 3 and the first versions of 4 spelt otherwise, with their names since: the sizes of a store's
files are not left at their defaults in silence."""

NAMESRV_UNUSED: Final[frozenset[str]] = frozenset(
    """
    clusterTest configStorePath productEnvName returnOrderTopicConfigToBroker rocketmqHome
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads useEpollNativeSelector writeBufferHighWaterMark
    writeBufferLowWaterMark
    """.split()  # noqa: SIM905 - as above
)
"""The same of a namesrv.conf."""

REFUSED: Final[dict[str, str]] = {
    "useTLS": "it is tlsMode here, with certificates of its own; leaving it out would send everything in clear text",
    "enableConsumeQueueExt": "the extended consume queue is not supported",
    "enableLmq": "light message queues are not supported",
    "enableMultiDispatch": "dispatch to several queues is not supported",
    "duplicationEnable": "the duplication mode is not supported",
    "messageStorePlugIn": "store plug-ins are Java classes and cannot be loaded",
    "readOnlyCommitLogStorePaths": "several commitlog directories are not supported",
}
"""Keys that are refused unless they are empty or ``false``."""
