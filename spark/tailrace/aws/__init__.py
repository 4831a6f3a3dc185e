"""Amazon's services, by boto3: EMR Serverless as a runner, objects of S3. Needs the extra `aws`.

Who calls is found as boto3 finds it: the environment, a profile, a role.
"""
